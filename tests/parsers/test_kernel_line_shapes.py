"""Every shape in which the GPU driver writes an Xid, under every prefix in which a kernel line is met, is read without a miss.

Shapes: open-gpu-kernel-modules (krcReportXid and the writers of each code); prefixes: dmesg, journalctl, syslog, /dev/kmsg.
"""
# ruff: noqa: E501 (raw lines keep their length)

import json

from hypothesis import given
from hypothesis import strategies as st

from outrider.parsers.kernel_log import KernelLog
from outrider.signals import Signal

#: What follows the number, by code, as the driver writes it.
TEXTS: dict[int, tuple[str, ...]] = {
    13: ("Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0): Out Of Range Address", "Graphics Exception: ESR 0x514648=0x1000e"),
    31: ("Ch 00000012, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_4 faulted @ 0x7e31_4c000000",),
    43: ("Ch 00000012",),
    45: ("Ch 00000001 caused by previous Xid 74", "Ch 00000003"),
    48: (
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x1c3a94f00 partition 9",
    ),
    62: ("0c83(1870) 00000000 00000000", "09d4 00000000 00000000"),
    63: ("Row Remapper: New row (0x0000000000abcdef) marked for remapping, reset gpu to activate.",),
    64: ("Row Remapper Error: (0x1) - All reserved rows for bank are remapped", "DRAM Retirement failed due to full table at 0x12"),
    74: ("NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",),
    79: ("GPU has fallen off the bus.",),
    94: ("Contained: CE User Channel (0x9). RST: No, D-RST: No", "Ch 00000008"),
    95: ("Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No",),
    119: (
        "Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4).",
        "Timeout waiting for RPC from GSP! Expected function FREE (0x0 0x0).",
        "Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) sequence 123 (0x1 0x4).",
    ),
    120: ("GSP Error: Task 1 raised error code 0x5 for reason 0x0 at 0x63f01ac (0 more errors skipped)", "Poison error in GSP."),
    136: ("NVLink: Link training failed for link 3(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",),
    140: ("An uncorrectable ECC error detected (possible firmware handling failure) DRAM:1, LTC:0, MMU:0, PCIE:0",),
    145: ("RLW_SRC_TRACK Nonfatal XC1 i0 Link 17 (0x04084507 0x00000004 0x00000000 0x00000000 0x00000000 0x00000000)",),
    149: (
        "NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
        "NETIR_LINK_DOWN  Fatal   XC0 i1 Link -1 (0x025525c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    ),
    154: ("GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",),
    155: ("NETIR_LINK_DOWN  Fatal   XC0 i0 Link 09 : Link Down While Active.",),
    156: ("Retiring TPC 3 from GPC 1 with a spare TPC",),
    160: ("Marking Channel 3 in FBPA 1 for retirement",),
    175: ("GPU memory subsystem timeout (type 1) detected",),
}
NAMES = (
    "python",
    "train_moe",
    "ray::WorkerDict",
    "nvc:[driver]",
    "a, b c",
    "nv_queue",
    "pt_main_thread",
    "kworker/u1:2",
    "x",
    "[a] (b)",
)

code_and_text = st.sampled_from([(code, text) for code, texts in TEXTS.items() for text in texts])
address = st.tuples(st.sampled_from(["0000", "0001", "00000000", "00010000"]), st.integers(0, 255), st.integers(0, 31))
process = st.one_of(
    st.none(),
    st.sampled_from(["pid='<unknown>', name=<unknown>, ", "pid=<unknown>, "]),
    st.tuples(st.integers(1, 4_194_304), st.sampled_from(NAMES)),
)
instance = st.sampled_from(["", " GPU-I:05", " GPU-I:05 GPU-CI:02"])
function = st.sampled_from(["", "", ".0"])
prefix = st.sampled_from(
    [
        "[412233.104512] {m}", "[    9.771023] {m}", "[61002.118734] [ T2210] {m}", "[61002.118734][   C12] {m}",
        "[Thu Mar 12 07:10:02 2026] {m}", "[Mon Feb  2 03:11:40 2026] {m}", "kern  :err   : [   12.345678] {m}", "<3>[   12.345678] {m}",
        "3,1227,437812449932,-;{m}", "4,1227,437812449932,c,caller=T22;{m}", "Mar 12 07:10:02 gn-012 kernel: {m}",
        "Mar  2 07:10:02 gn-012 kernel: [412233.104512] {m}", "<3>Mar 12 07:10:02 gn-012 kernel: {m}",
        "2026-03-12T07:10:02.123456+00:00 gn-012 kernel: {m}", "2026-03-12T07:10:02+0100 gn-012 kernel: {m}",
        "Thu 2026-03-12 07:10:02 UTC gn-012 kernel: {m}", "1773299402.123456 gn-012 kernel: {m}", "[  412.345678] gn-012 kernel: {m}",
        "gn-012: [412233.104512] {m}", "/var/log/kern.log:12:Mar 12 07:10:02 gn-012 kernel: {m}", "JSON",
    ]
)  # fmt: skip


def read(line: str) -> Signal | None:
    return KernelLog().feed(line)


def wrap(form: str, message: str) -> str:
    if form == "JSON":
        entry = {
            "_TRANSPORT": "kernel",
            "SYSLOG_IDENTIFIER": "kernel",
            "MESSAGE": message,
            "__REALTIME_TIMESTAMP": "1773299402000000",
        }
        return json.dumps(entry)
    return form.replace("{m}", message)


@given(prefix, code_and_text, address, process, instance, function)
def test_every_shape_of_an_xid_is_read_under_every_prefix(form, shape, place, who, mig, digit) -> None:
    code, text = shape
    domain, bus, device = place
    pci = f"{domain}:{bus:02x}:{device:02x}"
    told = who if isinstance(who, str) else "" if who is None else f"pid={who[0]}, name={who[1]}, "
    signal = read(wrap(form, f"NVRM: Xid (PCI:{pci}{digit}{mig}): {code}, {told}{text}"))
    assert signal is not None
    assert (signal.kind, signal.value) == ("xid", code)
    assert signal.pci == f"{int(domain, 16):04x}:{bus:02x}:{device:02x}"
    assert signal.data["detail"] == text
    if isinstance(who, tuple):
        assert (signal.data["pid"], signal.data["name"]) == who
    else:
        assert "pid" not in signal.data and "name" not in signal.data
    assert ("mig" in signal.data) == bool(mig)


@given(prefix, st.sampled_from(["", ","]), st.integers(1, 200))
def test_a_number_at_the_end_of_the_line_is_read(form, comma, code) -> None:
    for head in (f"NVRM: Xid (PCI:0000:3b:00): {code}", f"NVRM: Xid (0000:3b:00): {code}"):
        signal = read(wrap(form, head + comma))
        assert signal is not None and signal.value == code and signal.pci == "0000:3b:00"


@given(prefix)
def test_a_gpu_that_fell_off_the_bus_is_read_in_one_line_and_in_three(form) -> None:
    one = read(wrap(form, "NVRM: GPU 0000:29:00.0: GPU has fallen off the bus."))
    assert one is not None and (one.value, one.pci) == (79, "0000:29:00")
    log = KernelLog()
    three = [
        log.feed(wrap(form, "NVRM: " + text))
        for text in (
            "The NVIDIA GPU 0000:b3:00.0",
            "(PCI ID: 10de:26b5) installed in this system has",
            "fallen off the bus and is not responding to commands.",
        )
    ]
    assert three[:2] == [None, None]
    assert three[2] is not None and (three[2].value, three[2].pci) == (79, "0000:b3:00")


@given(prefix, st.integers(10000, 32000), st.sampled_from(["Fatal", "Non-fatal", "Correctable"]), st.integers(0, 63))
def test_one_switch_error_of_three_rows_is_one_event(form, code, severity, link) -> None:
    log = KernelLog()
    head = f"nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): {code}, "
    rows = (
        f"{severity}, Link {link:02d} egress non-posted PRIV error (First)",
        "Severity 1 Engine instance 46 Sub-engine instance 00",
        "Data {0x00140004, 0x00100000, 0x00140004}",
    )
    signals = [signal for row in rows if (signal := log.feed(wrap(form, head + row)))]
    assert len(signals) == 1
    assert (signals[0].value, signals[0].link, signals[0].switch) == (code, link, "nvswitch3")
    assert signals[0].data["severity"] == severity.lower().replace("-", "")


def test_the_free_text_of_a_switch_is_an_event_without_severity() -> None:
    signal = read("[1.0] nvidia-nvswitch0: SXid (PCI:0000:c5:00.0): 28003, OSFP over temperature")
    assert signal is not None and signal.value == 28003 and "severity" not in signal.data


def test_times_of_one_log_are_in_order() -> None:
    log = KernelLog()
    lines = ("[Mar12 07:10] NVRM: Xid (PCI:0000:3b:00): 31", "[  +0.250000] NVRM: Xid (PCI:0000:3b:00): 43")
    first, second = (log.feed(line) for line in lines)
    assert first and second and second.t - first.t == 0.25


def test_details_of_a_text_are_read() -> None:
    def data(text: str) -> dict:
        signal = read("[1.0] NVRM: Xid (PCI:0000:3b:00): " + text)
        assert signal is not None
        return signal.data | {"link": signal.link}

    assert data("74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)")["registers"][2] == 0x10000
    assert data("45, pid=1, name=p, Ch 1 caused by previous Xid 149")["caused_by"] == 149
    assert data("95, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No")["reset"] == {"rst": True, "d_rst": False}
    assert data("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")["recovery"]["to"] == 0
    netir = data("149, NETIR_LINK_EVT  Fatal   XC0 i1 Link 09 (0x025525c6 0x00000000 0x0 0x0 0x0 0x0)")
    assert (netir["severity"], netir["injected"], netir["link"], netir["reason"]) == ("fatal", True, 9, 0x025525C6 >> 20 & 0x3F)
    assert netir["sub_unit"] == {"before_r575": 0x025525C6 >> 5 & 0x1F, "r575": 0x025525C6 & 0x7F}
