"""What is saved: the job's model, optimizer, scheduler, scaler, data position and sampler, as one tree; and how it is loaded."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.sdk.log import warn_once
from outrider.snapshots.errors import RestoreError


class Subject:
    """The job's objects. Each may be one object, a list or a dict of them, or None.

    Parameters, moments, scheduler and scaler change only while the motion mark is odd, so they are read when a copy is made.
    What changes at other times (data position, sampler's epoch, buffers such as batch statistics) is kept by `remember` at
    the end of each step, on the training thread.
    """

    def __init__(self, *, model: Any, optimizer: Any, scheduler: Any, scaler: Any, data: Any, sampler: Any, extra: Any) -> None:
        self.models = {name: unwrapped(module) for name, module in _named(model).items()}
        self.optimizers = _named(optimizer)
        self.others = {"scheduler": _named(scheduler), "scaler": _named(scaler), "extra": _named(extra)}
        self._data, self._sampler = data, sampler
        if data is not None and not hasattr(data, "state_dict"):
            self._data = None
            warn_once("data", f"data: {type(data).__name__} has no state_dict, so its position is not saved: after a restore it "
                      "begins anew, and the resumed job sees other data than one that was never stopped; torchdata's "
                      "StatefulDataLoader has one")  # fmt: skip
        self._buffers = [
            (module, key, f"{prefix}.{key}" if prefix else key, name)
            for name, model_ in self.models.items()
            for prefix, module in model_.named_modules()
            for key in module._buffers
            if key not in module._non_persistent_buffers_set and module._buffers[key] is not None
        ]
        self._kept: list[Any] = []

    @property
    def has_scaler(self) -> bool:
        return bool(self.others["scaler"])

    def parameters_bytes(self) -> int:
        """Bytes of all parameters and buffers."""
        tensors = [t for model in self.models.values() for t in (*model.parameters(), *model.buffers())]
        return sum(t.numel() * t.element_size() for t in tensors)

    def scheduler_step(self) -> int | None:
        """The first scheduler's count, if it has one."""
        for scheduler in self.others["scheduler"].values():
            return getattr(scheduler, "last_epoch", None)
        return None

    def learning_rate(self) -> float:
        """The first optimizer's first learning rate; NaN if it is no plain number (a tensor may have to be waited for)."""
        for optimizer in self.optimizers.values():
            rate = optimizer.param_groups[0].get("lr")
            return rate if isinstance(rate, float) else math.nan
        return math.nan

    def remember(self) -> tuple[Any, int | None]:
        """Keeps the buffers, and returns the data's position and the sampler's epoch as they are now."""
        if self._buffers:
            self._keep_buffers()
        data = None
        if self._data is not None:
            try:
                data = self._data.state_dict()
            except Exception as error:
                self._data = None
                warn_once("data", f"the data's position cannot be had, it will not be saved: {error!r}")
        return data, getattr(self._sampler, "epoch", None)

    def tree(self) -> dict[str, Any]:
        """The state as a tree of tensors and plain values, without copying a tensor."""
        models = {name: dict(model.state_dict()) for name, model in self.models.items()}
        for (_, _, full, name), kept in zip(self._buffers, self._kept, strict=False):
            models[name][full] = kept
        tree: dict[str, Any] = {"model": models}
        tree["optimizer"] = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        for kind, objects in self.others.items():
            tree[kind] = {name: one.state_dict() for name, one in objects.items()}
        return tree

    def load(self, tree: Mapping[str, Any], data: Any, epoch: int | None) -> None:
        """Puts a saved state into the job's objects.

        Raises:
            RestoreError: the state does not fit the objects.
        """
        kinds = {"model": self.models, "optimizer": self.optimizers, **self.others}
        for kind, objects in kinds.items():
            if tree[kind].keys() != objects.keys():
                there, here = ", ".join(tree[kind]) or "none", ", ".join(objects) or "none"
                raise RestoreError(f"the snapshot has as {kind}: {there}; attached are: {here}")
            for name, one in objects.items():
                try:
                    one.load_state_dict(tree[kind][name])
                except (RuntimeError, ValueError, KeyError, TypeError) as error:
                    reason = " ".join(str(error).split())[:300]
                    raise RestoreError(f"the snapshot's {kind} does not fit the attached one: {reason}") from None
        if self._sampler is not None and epoch is not None:
            self._sampler.set_epoch(epoch)
        if self._data is not None and data is not None:
            self._data.load_state_dict(data)

    def _keep_buffers(self) -> None:
        import torch

        live = [module._buffers[key] for module, key, _, _ in self._buffers]
        if len(self._kept) == len(live):
            torch._foreach_copy_(self._kept, live)
        else:
            self._kept = [one.detach().clone() for one in live]


def unwrapped(module: Any) -> Any:
    """The user's module inside DistributedDataParallel, DataParallel or a compiled one."""
    while True:
        if hasattr(module, "_orig_mod"):
            module = module._orig_mod
        elif type(module).__name__ in ("DistributedDataParallel", "DataParallel"):
            module = module.module
        else:
            return module


def _named(objects: Any) -> dict[str, Any]:
    if objects is None:
        return {}
    if isinstance(objects, Mapping):
        return dict(objects)
    if isinstance(objects, Sequence):
        return {str(place): one for place, one in enumerate(objects)}
    return {"main": objects}
