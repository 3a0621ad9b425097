"""Small models of diffusers (0.42), two blocks of each kind and narrow, for tools/record.py: each function builds one."""
import torch


def zeros(*shape):
    return torch.zeros(shape)


def noise(output):
    return output[0].float().pow(2).mean()


def flux(batch, seq):
    from diffusers import FluxTransformer2DModel
    model = FluxTransformer2DModel(in_channels=16, num_layers=2, num_single_layers=2, attention_head_dim=32, num_attention_heads=4,
                                   joint_attention_dim=64, pooled_projection_dim=48, guidance_embeds=True, axes_dims_rope=(8, 12, 12))
    return model, {"hidden_states": zeros(batch, seq, 16), "encoder_hidden_states": zeros(batch, 24, 64),
                   "pooled_projections": zeros(batch, 48), "timestep": zeros(batch), "guidance": zeros(batch),
                   "img_ids": zeros(seq, 3), "txt_ids": zeros(24, 3), "return_dict": False}, noise


def sd3(batch, seq):
    from diffusers import SD3Transformer2DModel
    side = 2 * int(seq ** 0.5)
    model = SD3Transformer2DModel(sample_size=32, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=32, num_attention_heads=4,
                                  joint_attention_dim=64, caption_projection_dim=128, pooled_projection_dim=48, out_channels=4,
                                  pos_embed_max_size=32, qk_norm="rms_norm", dual_attention_layers=(0,))
    return model, {"hidden_states": zeros(batch, 4, side, side), "encoder_hidden_states": zeros(batch, 24, 64),
                   "pooled_projections": zeros(batch, 48), "timestep": zeros(batch), "return_dict": False}, noise


def wan(batch, seq):
    from diffusers import WanTransformer3DModel
    side = 2 * int((seq / 2) ** 0.5)
    model = WanTransformer3DModel(patch_size=(1, 2, 2), num_attention_heads=4, attention_head_dim=32, in_channels=4, out_channels=4,
                                  text_dim=64, freq_dim=32, ffn_dim=256, num_layers=2, rope_max_seq_len=64)
    return model, {"hidden_states": zeros(batch, 4, 2, side, side), "encoder_hidden_states": zeros(batch, 24, 64),
                   "timestep": zeros(batch), "return_dict": False}, noise


def hunyuan(batch, seq):
    from diffusers import HunyuanVideoTransformer3DModel
    side = 2 * int((seq / 2) ** 0.5)
    model = HunyuanVideoTransformer3DModel(in_channels=4, out_channels=4, num_attention_heads=4, attention_head_dim=32, num_layers=2,
                                           num_single_layers=2, num_refiner_layers=2, patch_size=2, patch_size_t=1,
                                           guidance_embeds=True, text_embed_dim=64, pooled_projection_dim=48, rope_axes_dim=(8, 12, 12))
    return model, {"hidden_states": zeros(batch, 4, 2, side, side), "encoder_hidden_states": zeros(batch, 24, 64),
                   "encoder_attention_mask": torch.ones(batch, 24, dtype=torch.bool),
                   "pooled_projections": zeros(batch, 48), "timestep": torch.zeros(batch, dtype=torch.int64), "guidance": zeros(batch),
                   "return_dict": False}, noise


def cogvideox(batch, seq):
    from diffusers import CogVideoXTransformer3DModel
    side = 2 * int((seq / 2) ** 0.5)
    model = CogVideoXTransformer3DModel(num_attention_heads=4, attention_head_dim=32, in_channels=4, out_channels=4, time_embed_dim=32,
                                        text_embed_dim=64, num_layers=2, sample_width=side, sample_height=side, sample_frames=5,
                                        patch_size=2, temporal_compression_ratio=4, max_text_seq_length=24)
    return model, {"hidden_states": zeros(batch, 2, 4, side, side), "encoder_hidden_states": zeros(batch, 24, 64),
                   "timestep": zeros(batch), "return_dict": False}, noise


def ltx(batch, seq):
    from diffusers import LTXVideoTransformer3DModel
    side = int((seq / 2) ** 0.5)
    model = LTXVideoTransformer3DModel(in_channels=16, out_channels=16, num_attention_heads=4, attention_head_dim=32, cross_attention_dim=128,
                                       num_layers=2, caption_channels=64)
    return model, {"hidden_states": zeros(batch, 2 * side * side, 16), "encoder_hidden_states": zeros(batch, 24, 64),
                   "timestep": zeros(batch), "encoder_attention_mask": torch.ones(batch, 24, dtype=torch.int64),
                   "num_frames": 2, "height": side, "width": side, "return_dict": False}, noise


def pixart(batch, seq):
    from diffusers import PixArtTransformer2DModel
    side = 2 * int(seq ** 0.5)
    model = PixArtTransformer2DModel(num_attention_heads=4, attention_head_dim=32, in_channels=4, out_channels=8, num_layers=2,
                                     cross_attention_dim=128, sample_size=side, patch_size=2, caption_channels=64,
                                     use_additional_conditions=False)
    return model, {"hidden_states": zeros(batch, 4, side, side), "encoder_hidden_states": zeros(batch, 24, 64),
                   "encoder_attention_mask": torch.ones(batch, 24), "timestep": zeros(batch),
                   "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}, "return_dict": False}, noise


def sana(batch, seq):
    from diffusers import SanaTransformer2DModel
    side = int(seq ** 0.5)
    model = SanaTransformer2DModel(in_channels=4, out_channels=4, num_attention_heads=4, attention_head_dim=32, num_layers=2,
                                   num_cross_attention_heads=4, cross_attention_head_dim=32, cross_attention_dim=128, caption_channels=64,
                                   sample_size=side, patch_size=1)
    return model, {"hidden_states": zeros(batch, 4, side, side), "encoder_hidden_states": zeros(batch, 24, 64),
                   "encoder_attention_mask": torch.ones(batch, 24), "timestep": zeros(batch), "return_dict": False}, noise


def qwenimage(batch, seq):
    from diffusers import QwenImageTransformer2DModel
    side = int(seq ** 0.5)
    model = QwenImageTransformer2DModel(patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=32,
                                        num_attention_heads=4, joint_attention_dim=64, axes_dims_rope=(8, 12, 12))
    return model, {"hidden_states": zeros(batch, side * side, 16), "encoder_hidden_states": zeros(batch, 24, 64),
                   "encoder_hidden_states_mask": torch.ones(batch, 24, dtype=torch.int64), "timestep": zeros(batch),
                   "img_shapes": [(1, side, side)] * batch, "return_dict": False}, noise


def sdxl(batch, seq):
    from diffusers import UNet2DConditionModel
    side = int(seq ** 0.5)
    model = UNet2DConditionModel(sample_size=side, block_out_channels=(32, 64), down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                                 up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), layers_per_block=1,
                                 transformer_layers_per_block=(1, 2), attention_head_dim=(1, 2), cross_attention_dim=64,
                                 use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=8,
                                 projection_class_embeddings_input_dim=80)
    return model, {"sample": zeros(batch, 4, side, side), "timestep": zeros(batch), "encoder_hidden_states": zeros(batch, 24, 64),
                   "added_cond_kwargs": {"text_embeds": zeros(batch, 32), "time_ids": zeros(batch, 6)}, "return_dict": False}, noise


def vae(batch, seq):
    from diffusers import AutoencoderKL
    side = 2 * int(seq ** 0.5)
    model = AutoencoderKL(block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
                          layers_per_block=2, latent_channels=4, norm_num_groups=8)
    return model, {"sample": zeros(batch, 3, side, side), "return_dict": False}, noise
