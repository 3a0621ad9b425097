"""Configurations as torchtitan has them since it left TOML."""
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.trainer import Trainer

from . import model_registry


def llama3_8b() -> Trainer.Config:
    model_spec = model_registry("8B")
    return Trainer.Config(
        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),
        hf_assets_path="./assets/hf/Llama-3.1-8B",
        model_spec=model_spec,
        optimizer=default_adamw(lr=3e-4),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=2 * 8192,
            num_tokens_per_train_step=64 * 2 * 8192,
            max_context_length=8192,
            steps=1000,
        ),
        parallelism=ParallelismConfig(data_parallel_shard_degree=32),
        activation_checkpoint=SelectiveAC.Config(early_stop=False),
    )


def llama3_8b_full_ac() -> Trainer.Config:
    config = llama3_8b()
    config.activation_checkpoint = FullAC.Config()
    config.parallelism.fsdp_reshard_after_forward = "always"
    config.training.mixed_precision_param = PRECISION[0]
    return config
