"""In which pod a process is, from its cgroup. Pure.

Source: the kubelet's names of cgroups (pod<uid>, with dashes or, under systemd, underscores).
"""

import re

_POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")


def pod_uid(cgroup: str) -> str:
    """The uid of the pod that a process of this /proc/PID/cgroup is in; empty if it is in none."""
    match = _POD.search(cgroup)
    return match[1].replace("_", "-") if match else ""
