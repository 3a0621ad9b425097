"""Small models of torchvision (0.29), for tools/record.py: each function builds one."""
import torch
import torch.nn.functional as F


def of_pictures(model, batch, side=64):
    target = torch.zeros(batch, dtype=torch.int64)
    return model, (torch.zeros(batch, 3, side, side),), lambda logits: F.cross_entropy(logits.float(), target)


def tv_swin(batch, seq):
    from torchvision.models.swin_transformer import SwinTransformer
    return of_pictures(SwinTransformer([4, 4], 32, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.1, num_classes=10), batch)


def tv_convnext(batch, seq):
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt
    blocks = [CNBlockConfig(32, 64, 2), CNBlockConfig(64, None, 2)]
    return of_pictures(ConvNeXt(blocks, stochastic_depth_prob=0.1, num_classes=10), batch)


def tv_vit(batch, seq):
    from torchvision.models import VisionTransformer
    return of_pictures(VisionTransformer(image_size=64, patch_size=16, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128,
                                         num_classes=10), batch)
