"""Who brings a pod back: owners followed upwards, kinds named by discovery. And the marks of ours that objects carry."""

import re
from dataclasses import dataclass, field
from typing import Any, Final

from alerts.schedulers.kube_api import KubeApi, Missing, Object
from alerts.schedulers.port import SchedulerError

FENCE: Final = "outrider.dev/fence"
INCIDENT: Final = "outrider.dev/incident"
REASON: Final = "outrider.dev/reason"
#: The newest attempt that was ended, by us or by Kueue.
ATTEMPT: Final = "outrider.dev/attempt"
#: Owners are followed upwards this far: pod -> Job -> JobSet -> TrainJob -> Workload is four.
OWNERS_MAX: Final = 5


def numbered(notes: dict[str, str], key: str, default: int) -> int:
    """A number that we wrote as an annotation. Raises SchedulerError: somebody else has written there."""
    text = str(notes.get(key, default))
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise SchedulerError(f"the annotation {key} is no number: {text[:40]!r}", "strange_answer", again=True)
    return int(text)


@dataclass(frozen=True, slots=True)
class Owner:
    """An object in a chain of owners."""

    group: str
    version: str
    kind: str
    path: str
    body: Object = field(repr=False)

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def notes(self) -> dict[str, str]:
        """Its annotations."""
        return dict(self.body["metadata"].get("annotations") or {})

    @property
    def group_kind(self) -> tuple[str, str]:
        return self.group, self.kind

    def reference(self) -> dict[str, Any]:
        """What makes another object its own, or points a command at it."""
        version = f"{self.group}/{self.version}" if self.group else self.version
        return {"apiVersion": version, "kind": self.kind, "name": self.name, "uid": self.uid, "controller": True}


class Owners:
    """Discovery and the way upwards."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        #: API group and version -> kind -> plural name, as the server tells.
        self._plurals: dict[str, dict[str, str]] = {}
        #: API group -> the version that the server prefers.
        self._preferred: dict[str, str] = {}

    async def chain(self, item: Object) -> list[Owner]:
        """The owners of `item`, nearest first; empty if it has none, or they are gone already."""
        namespace, found = item["metadata"]["namespace"], []
        for _ in range(OWNERS_MAX):
            reference = next((one for one in item["metadata"].get("ownerReferences") or () if one.get("controller")), None)
            if reference is None:
                break
            group, _, version = reference["apiVersion"].rpartition("/")
            base = f"/apis/{reference['apiVersion']}" if group else f"/api/{version}"
            plural = await self._plural(reference["apiVersion"], reference["kind"])
            path = f"{base}/namespaces/{namespace}/{plural}/{reference['name']}"
            try:
                item = await self._api.get(path)
            except Missing:
                break  # what is left carries the mark
            found.append(Owner(group, version, reference["kind"], path, item))
        return found

    async def preferred(self, group: str) -> str | None:
        """`group/version` as the server prefers it; None: it does not serve the group (asked again the next time)."""
        if group not in self._preferred:
            try:
                self._preferred[group] = (await self._api.get(f"/apis/{group}"))["preferredVersion"]["groupVersion"]
            except Missing:
                return None
            except (KeyError, TypeError):
                raise SchedulerError(f"/apis/{group} names no version", "strange_answer", again=True) from None
        return self._preferred[group]

    async def _plural(self, api_version: str, kind: str) -> str:
        """How the server names a kind in paths."""
        if api_version not in self._plurals:
            base = "/apis/" if "/" in api_version else "/api/"
            found = await self._api.get(base + api_version)
            self._plurals[api_version] = {
                one["kind"]: one["name"] for one in found.get("resources") or () if "/" not in one["name"]
            }
        plural = self._plurals[api_version].get(kind)
        if plural is None:
            raise SchedulerError(f"the API server knows no {kind} in {api_version}", "not_supported", again=False)
        return plural
