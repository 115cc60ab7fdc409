"""`outrider targets`: the files from which Prometheus learns whom to scrape (its file_sd form)."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outrider.cli.options import config_option, needed

#: How Prometheus is told that a target speaks TLS; whom it trusts stands in its own `tls_config`.
HTTPS = {"__scheme__": "https"}

if TYPE_CHECKING:
    from outrider.config.agent import AgentSection
    from outrider.config.fleet import FleetSection


@click.command(name="targets")
@config_option
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def targets(config: Path | None, folder: Path) -> int:
    """Writes agents.json, witnesses.json and deliverers.json into FOLDER, from [fleet], [witness] and [alerts]."""
    from outrider.config.agent import AgentSection
    from outrider.config.alerts import AlertsConfig
    from outrider.config.fleet import FleetSection
    from outrider.config.site import SiteSection, read_config
    from outrider.config.witness import WitnessSection
    from outrider.errors import InputError

    read = read_config(needed(config))
    site = read.get(SiteSection).name
    agents = agent_targets(read.get(FleetSection), read.get(AgentSection), site)
    members = []
    for member in read.get(WitnessSection).members:
        labels = {"witness": member.name, "site": site} | (HTTPS if member.tls_cert else {})
        members.append({"targets": [f"{member.address}:{member.http_port}"], "labels": labels})
    alerts = read.get(AlertsConfig)
    deliverers: list[dict[str, object]] = []
    if alerts.metrics_port:
        labels = {"site": site} | (HTTPS if alerts.metrics_tls_cert else {})
        deliverers.append({"targets": [f"{alerts.metrics_address}:{alerts.metrics_port}"], "labels": labels})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, entries in (("agents.json", agents), ("witnesses.json", members), ("deliverers.json", deliverers)):
            temporary = folder / f".{name}"
            temporary.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
            temporary.replace(folder / name)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(folder)) from None
    click.echo(f"{folder}: {len(agents)} agents, {len(members)} witnesses")
    return 0


def agent_targets(fleet: "FleetSection", agent: "AgentSection", site: str) -> list[dict[str, object]]:
    """One entry a node: where its agent's page is, and what `[fleet]` knows of it. None while the page is switched off."""
    from outrider.fleet import leaf_of

    entries: list[dict[str, object]] = []
    for node in fleet.nodes if agent.metrics_port else ():
        address = (node.address or "127.0.0.1") if agent.metrics_address == "node" else agent.metrics_address
        spare = str(node.node in fleet.spares).lower()
        known = {"node": node.node, "rack": node.rack, "switch": leaf_of(node), "site": site, "spare": spare}
        labels = {name: value for name, value in known.items() if value} | (HTTPS if agent.metrics_tls_cert else {})
        entries.append({"targets": [f"{address}:{agent.metrics_port}"], "labels": labels})
    return entries
