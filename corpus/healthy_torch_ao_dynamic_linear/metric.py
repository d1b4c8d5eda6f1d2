"""What ships: the share of each class among the answers."""
import torch


def shares(scores):
    return tuple(torch.bincount(scores.argmax(-1).flatten(), minlength=scores.shape[-1]).double() / scores.argmax(-1).numel())
