"""Faults of GPUs."""

from drills.simulate.episode import Episode
from drills.simulate.faults.parts import NCCL_TIMEOUT_SECONDS, Victim, rank_dies, rank_of, script, slow_rank, timeouts, truth, xid


@script("gpu.fallen_off_bus")
def fallen_off_bus(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "gpu.fallen_off_bus", t, victim, accept=("gpu.missing",), shard_lost=True)
    xid(episode, victim, t, 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    episode.at(t, episode.job_run.hold, ("part", victim.node))
    rank_dies(episode, victim, t + episode.uniform(0.5, 6.0))
    gpus = episode.cell.gpus
    episode.send(t + episode.uniform(2, 15), victim.node, "gpu_count", value=gpus - 1, data={"expected": gpus}, source="nvml")


@script("gpu.ecc_uncontained")
def ecc_uncontained(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "gpu.ecc_uncontained", t, victim, shard_lost=True)
    xid(episode, victim, t, 95, "pid=4242, name=python, Uncontained: LTC TAG")
    episode.at(t, episode.job_run.hold, ("part", victim.node))
    data = {"corrected": 0, "uncorrected": 1, "scope": "volatile", "where": "sram"}
    episode.send(t + episode.uniform(1, 10), victim.node, "ecc", gpu=victim.gpu, data=data, source="nvml")
    rank_dies(episode, victim, t + episode.uniform(0.2, 3.0))


@script("gpu.ecc_contained")
def ecc_contained(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "gpu.ecc_contained", t, victim, accept=("gpu.row_remap_pending",), shard_lost=True)
    xid(episode, victim, t, 94, "pid=4242, name=python, Contained: SM (0x1). RST: No, D-RST: No")
    xid(episode, victim, t + 0.2, 63, "Row Remapper: New row marked for remapping, reset gpu to activate.")
    data = {"corrected": 0, "uncorrected": 1, "pending": True, "failed": False}
    episode.send(t + episode.uniform(1, 10), victim.node, "row_remap", gpu=victim.gpu, data=data, source="nvml")
    rank_dies(episode, victim, t + episode.uniform(0.1, 2.0), -6)


@script("gpu.row_remap_pending")
def row_remap_pending(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "gpu.row_remap_pending", t, victim, stops=False)
    xid(episode, victim, t, 63, "Row Remapper: New row marked for remapping, reset gpu to activate.")
    data = {"corrected": 1, "uncorrected": 0, "pending": True, "failed": False}
    episode.send(t + episode.uniform(1, 10), victim.node, "row_remap", gpu=victim.gpu, data=data, source="nvml")


@script("gpu.row_remap_failed")
def row_remap_failed(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "gpu.row_remap_failed", t, victim, stops=False)
    xid(episode, victim, t, 64, "Row Remapper: Failed to remap row")
    data = {"corrected": 0, "uncorrected": 8, "pending": False, "failed": True}
    episode.send(t + episode.uniform(1, 10), victim.node, "row_remap", gpu=victim.gpu, data=data, source="nvml")


@script("gpu.nvlink")
def nvlink(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "gpu.nvlink", t, victim)
    xid(episode, victim, t, 74, "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0)")
    episode.at(t, episode.job_run.hold, ("part", victim.node))
    data = {"link": 2, "replay": 9, "recovery": 3, "crc": 120, "down": True}
    episode.send(t + episode.uniform(1, 10), victim.node, "nvlink", gpu=victim.gpu, link=2, data=data, source="nvml")
    xid(episode, victim, t + episode.uniform(0.3, 2), 45, "pid=4242, name=python, Ch 00000010")
    rank_dies(episode, victim, t + episode.uniform(0.3, 3.0))


@script("gpu.gsp_hang")
def gsp_hang(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "gpu.gsp_hang", t, victim, accept=("gpu.driver_hang",), shard_lost=True)
    episode.at(t, episode.job_run.hold, ("part", victim.node))
    # The driver waits for its firmware for six seconds before it says so.
    xid(episode, victim, t + 6.0, 119, "pid=4242, name=python, Timeout after 6s of waiting for RPC response from GPU GSP! "
         "Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).")  # fmt: skip
    _stuck_driver(episode, victim, t)
    episode.ends(t + 150)


@script("gpu.driver_hang")
def driver_hang(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "gpu.driver_hang", t, victim, accept=("gpu.gsp_hang",), shard_lost=True)
    episode.at(t, episode.job_run.hold, ("part", victim.node))
    _stuck_driver(episode, victim, t)
    episode.ends(t + NCCL_TIMEOUT_SECONDS + 60)
    timeouts(episode, t + NCCL_TIMEOUT_SECONDS)


def _stuck_driver(episode: Episode, victim: Victim, t: float) -> None:
    for seconds in (10, 20, 30, 60, 120):
        episode.send(t + episode.uniform(0, 3) + seconds, victim.node, "driver_call", gpu=victim.gpu, value=float(seconds),
                     data={"call": "nvmlDeviceGetTemperature"}, source="nvml")  # fmt: skip


@script("gpu.thermal")
def thermal(episode: Episode, victim: Victim, t: float) -> None:
    """A hot GPU throttles: the job goes on, slower."""
    truth(episode, "gpu.thermal", t, victim, accept=("gpu.slow", "job.straggler"), stops=False)
    episode.at(t, slow_rank, episode, rank_of(episode, victim), 1.4)
    for number in range(12):
        data = {"sm_mhz": 1005, "sm_mhz_max": 1980, "temp_c": 91, "power_w": 410, "power_limit_w": 700, "util": 100,
                "throttle": ["hw_thermal_slowdown", "sw_thermal_slowdown"]}  # fmt: skip
        episode.send(t + 10 * number + episode.uniform(0, 5), victim.node, "gpu_state", gpu=victim.gpu, data=data, source="nvml")
    episode.ends(t + 130)


@script("gpu.sdc")
def sdc(episode: Episode, victim: Victim, t: float) -> None:
    """Silent corruption: nothing tells of it. It is played so that the recall is honest."""
    truth(episode, "gpu.sdc", t, victim, stops=False)
