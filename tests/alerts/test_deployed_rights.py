"""What is deployed fits what the code does."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_rights_in_kubernetes_cover_every_call_of_the_adapter_and_nothing_wide() -> None:
    text = (ROOT / "deploy/kubernetes/rbac.yaml").read_text()
    granted = set()
    for resources, verbs in re.findall(r"resources: \[(.*?)\]\n\s+verbs: \[(.*?)\]", text):
        for resource in re.findall(r'"([^"]+)"', resources):
            granted |= {(resource, verb) for verb in re.findall(r'"([^"]+)"', verbs)}
    needed = {
        ("nodes", "get"), ("nodes", "list"), ("nodes", "patch"), ("nodes/status", "patch"), ("pods", "list"), ("pods", "watch"),
        ("pods", "delete"), ("pods/eviction", "create"), ("jobs", "get"), ("jobs", "patch"), ("jobsets", "get"),
        ("jobsets", "patch"),
        ("trainjobs", "get"), ("trainjobs", "patch"), ("commands", "create"),
    }  # fmt: skip
    assert granted == needed
    assert "*" not in text


@pytest.mark.parametrize("page", ["docs/schedulers.md", "docs/webhooks.md", "docs/safety.md", "docs/alerting.md"])
def test_files_that_the_pages_name_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    for name in re.findall(r"`((?:deploy|tests|docs)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(decisions/[\w.-]+)`", text):
        assert (ROOT / "docs" / name).exists(), name
