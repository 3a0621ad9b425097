"""A small UNet of Hugging Face diffusers, for tools/record.py."""
import torch
from diffusers import UNet2DConditionModel


def build(batch, seq):
    """seq: pixels of a latent image, a square number."""
    side = int(seq ** 0.5)
    model = UNet2DConditionModel(sample_size=side, block_out_channels=(32, 64), layers_per_block=1,
                                 down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                 up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                                 cross_attention_dim=64, attention_head_dim=8, norm_num_groups=8)
    inputs = {"sample": torch.zeros(batch, 4, side, side), "timestep": torch.zeros(batch, dtype=torch.int64),
              "encoder_hidden_states": torch.zeros(batch, 77, 64)}
    return model, inputs, lambda output: output.sample.float().pow(2).mean()
