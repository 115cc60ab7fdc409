"""The drill's training job: a real PyTorch DDP run that learns the English of Python's own help texts."""


def preload() -> None:
    """Imports all that a rank needs, so that a child forked afterwards takes its first step in a third of a second.

    Nothing is computed here: no thread may exist when ranks are forked.
    """
    import importlib

    import torch

    torch.set_num_threads(1)
    names = ["torch.distributed", "torch.nn.parallel", "torch._dynamo"]
    names += ["pydoc_data.topics", "outrider.sdk.attaching", "drills.job.train"]
    for name in names:
        importlib.import_module(name)
