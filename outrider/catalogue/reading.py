"""What one Xid or SXid line means, by its code and by its text: severity words, registers, the driver's own verdict.

Pure. Rules over several lines (what follows what, repeats on one unit) belong to the judges; rules of one line stand here.
Source: NVIDIA's Xid catalog as gathered in `xids.jsonl`; the driver's `gpu.c` for the recovery actions.
"""

from dataclasses import dataclass
from typing import Any, Final

from outrider.catalogue.codes import Code, CodeBook, Role
from outrider.catalogue.faults import Repair, Response
from outrider.signals import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a line says. `note` is for people: why the text moved the answer away from the code's own entry."""

    code: Code
    role: Role
    fault: str
    response: Response
    repair: Repair
    decisive: bool
    note: str = ""
    #: 154 only: the driver wants nothing (any more).
    recovered: bool = False
    #: the fault may lie at the other end of the link
    peer: bool = False


def read_code(signal: Signal, codes: CodeBook) -> Reading:
    """The meaning of a signal of kind `xid` or `sxid`."""
    number = signal.value if isinstance(signal.value, int) else -1
    if signal.kind == "sxid":
        code = codes.sxid(number)
        return _plain(code) if code.overridden else _read_sxid(code, signal.data)
    code = codes.xid(number)
    if code.overridden:
        return _plain(code)
    if signal.data.get("injected"):
        return _plain(code, role="injected", response="ignore", repair="none", decisive=False, note="injected: a test")
    if number == 74:
        return _read_registers(code, signal.data.get("registers"))
    if 144 <= number <= 150:
        return _read_nvlink5(code, signal.data)
    if number == 154:
        return _read_recovery(code, signal.data.get("recovery"))
    if number in (94, 95) and any(signal.data.get("reset", {}).values()):
        return _plain(code, repair="reset_gpu", note="the line asks for a reset (RST or D-RST: Yes)")
    if number == 64 and _is_pending(str(signal.data.get("detail", ""))):
        return _plain(code, fault="gpu.row_remap_pending", repair="reset_gpu", note="the row is only pending: a reset cures it")
    return _plain(code)


def _plain(code: Code, **changed: Any) -> Reading:
    fields = {name: getattr(code, name) for name in ("role", "fault", "response", "repair", "decisive")}
    return Reading(code=code, **(fields | changed))


def _is_pending(text: str) -> bool:
    text = text.lower()
    return "already pending" in text or "pending row remap" in text


# --- 74: seven registers (numbers of bits, by register; NVIDIA Xid catalog) --------------------------------------------------
_NOTHING: Final = {0: {0, 23, 30}, 2: {13}, 4: {20, 23, 26, 29}}
_SECONDARY: Final = {0: {1, 20}, 3: {16, 17, 18}}
_PARITY: Final = {0: {4, 5}, 2: {0, 1, 2, 6}, 4: {18, 19, 21, 22, 24, 25, 27, 28}}
_HARDWARE: Final = {0: {8, 9, 12, 16, 17, 24, 28}}
_SIGNAL: Final = {0: {21, 22}}
_IF_REPEATED: Final = {0: {27, 29}, 2: {16, 17, 18, 19}}


def _hit(table: dict[int, set[int]], registers: tuple[int, ...]) -> bool:
    return any(registers[index] >> bit & 1 for index, bits in table.items() if index < len(registers) for bit in bits)


def _read_registers(code: Code, registers: tuple[int, ...] | None) -> Reading:
    if not registers or not any(registers):
        return _plain(code, note="no registers on the line: what kind of error it was is unknown")
    if _hit(_HARDWARE, registers):
        return _plain(code, note="the registers say hardware or seating of the link")
    if _hit(_PARITY, registers):
        return _plain(
            code, repair="reset_gpu", note="the registers say parity or ECC on the link: more than two on one link is hardware"
        )
    if _hit(_SIGNAL, registers):
        return _plain(code, response="drain", note="the registers say weak signal on the link")
    if _hit(_SECONDARY, registers):
        return _plain(code, role="secondary", response="page", note="the registers say: follows an error elsewhere", peer=True)
    if _hit(_IF_REPEATED, registers):
        return _plain(code, role="info", response="watch", repair="none", note="counts only if repeated")
    if _hit(_NOTHING, registers):
        return _plain(code, role="info", response="ignore", repair="none", note="the registers say: no action")
    return _plain(code, note="register bits that the catalog does not explain")


# --- 144 to 150: NVLink 5, severity and reason -------------------------------------------------------------------------------
_REASON_LINK: Final = frozenset({2, 4, 10, 42, 43})
_REASON_PEER: Final = frozenset({21, 32, 33, 34, 35, 36, 37})
_REASON_SOFTWARE: Final = frozenset({15, 16, 17, 18, 22})
_REASON_NOTHING: Final = frozenset({38, 40})


def _read_nvlink5(code: Code, data: dict[str, Any]) -> Reading:
    severity, reason = data.get("severity"), data.get("reason")
    if severity in ("nonfatal", "correctable"):
        return _plain(code, role="info", response="ignore", repair="none", decisive=False, note="the line says Nonfatal")
    if code.code == 149 and reason in _REASON_NOTHING:
        return _plain(code, role="info", response="ignore", repair="none", note=f"link down for reason {reason}: asks for nothing")
    if code.code == 149 and reason in _REASON_LINK:
        return _plain(code, repair="check_link", note=f"link down for reason {reason}: link or cable")
    if code.code == 149 and reason in _REASON_PEER:
        return _plain(code, note=f"link down for reason {reason}: look at the device at the other end", peer=True)
    if code.code == 149 and reason in _REASON_SOFTWARE:
        return _plain(code, response="page", repair="investigate", note=f"link down for reason {reason}: software or a user did it")
    if severity is None:
        return _plain(code, response="page", repair="investigate", note="no severity on the line")
    return _plain(code, note="the line says Fatal")


# --- 154: the driver's verdict -----------------------------------------------------------------------------------------------
#: Number -> response and repair (NVML nvmlDeviceGpuRecoveryAction_t; 6 and 7 are newer).
_RECOVERY: Final[dict[int, tuple[Response, Repair]]] = {
    1: ("drain", "reset_gpu"),
    2: ("restart", "reboot_node"),
    3: ("drain", "reset_gpu"),
    4: ("drain", "reset_gpu"),
    5: ("page", "investigate"),
    6: ("restart", "reboot_node"),
    7: ("restart", "reboot_node"),
}


def _read_recovery(code: Code, recovery: dict[str, Any] | None) -> Reading:
    if not recovery:
        return _plain(code, role="verdict", note="the line does not say what the driver wants")
    wanted, text = recovery["to"], recovery["text"]
    if wanted == 0:
        return _plain(code, response="ignore", repair="none", recovered=True, note="the driver wants nothing (any more)")
    response, repair = _RECOVERY.get(wanted, ("page", "investigate"))
    return _plain(code, response=response, repair=repair, note=f"the driver asks: {text}")


# --- SXid --------------------------------------------------------------------------------------------------------------------
def _read_sxid(code: Code, data: dict[str, Any]) -> Reading:
    severity = data.get("severity")
    if severity in ("nonfatal", "correctable"):
        return _plain(code, role="info", response="ignore", repair="none", decisive=False, note=f"the line says {severity}")
    if severity == "fatal" and code.response in ("ignore", "watch"):
        return _plain(code, role="root", response="restart", repair="reset_gpu", note="the line says Fatal")
    if code.role == "severity":
        if severity is None:
            return _plain(code, role="info", response="ignore", repair="none", note="no severity on the line")
        return _plain(code, role="root", note="the line says Fatal")
    return _plain(code)
