"""Job schedulers behind one interface: Slurm, Kubernetes, and torchrun on plain hosts."""

from alerts.schedulers.port import Scheduler
from alerts.schedulers.sender import SchedulerSender
from outrider.config.alerts import AlertsConfig

__all__ = ["make_scheduler_senders"]


def make_scheduler_senders(settings: AlertsConfig) -> list[SchedulerSender]:
    """All schedulers of the configuration; a kind's module is loaded only if it is used."""
    made: list[tuple[Scheduler, tuple[str, ...], int]] = []
    for slurm in settings.slurm:
        from alerts.schedulers.slurm import SlurmScheduler
        from alerts.schedulers.slurm_api import make_api

        made.append((SlurmScheduler(slurm, make_api(slurm)), slurm.types, slurm.attempts_max))
    for kubernetes in settings.kubernetes:
        from alerts.schedulers.kubernetes import KubernetesScheduler

        made.append((KubernetesScheduler(kubernetes), kubernetes.types, kubernetes.attempts_max))
    for hosts in settings.hosts:
        from alerts.schedulers.hosts import HostsScheduler

        made.append((HostsScheduler(hosts), hosts.types, hosts.attempts_max))
    return [SchedulerSender(scheduler, types, attempts, settings.spare_check) for scheduler, types, attempts in made]
