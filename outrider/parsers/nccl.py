"""What NCCL prints with NCCL_DEBUG=WARN, and its result strings; how its InfiniBand statuses are to be read.

Source: message shapes of NCCL 2.10 to 2.30 (transport/net_ib*, misc/socket.cc, misc/ibvwrap.cc, proxy.cc, bootstrap.cc),
ibv_wc_status
of libibverbs. The address in `<ip<port>>` is the remote's bootstrap address (management network), not its HCA's.
"""

from typing import Any, Final, NamedTuple

from outrider.parsers.train_log_rule import Gates, gate, rule


class IbStatus(NamedTuple):
    """A work completion status. `blame`: path (peer, link and local port alike), peer, code (a bug), secondary, local."""

    name: str
    blame: str
    meaning: str


#: Number -> status. Only those that NCCL's verbs can meet; another number is told as it is.
IB_STATUS: Final[dict[int, IbStatus]] = {
    1: IbStatus("IBV_WC_LOC_LEN_ERR", "code", "a message was longer than the buffer that waited for it"),
    2: IbStatus("IBV_WC_LOC_QP_OP_ERR", "local", "the local queue pair is inconsistent"),
    4: IbStatus("IBV_WC_LOC_PROT_ERR", "code", "local memory was not registered for this access"),
    5: IbStatus("IBV_WC_WR_FLUSH_ERR", "secondary", "the queue pair was broken already: always a consequence"),
    6: IbStatus("IBV_WC_MW_BIND_ERR", "code", "a memory window could not be bound"),
    7: IbStatus("IBV_WC_BAD_RESP_ERR", "peer", "the peer answered something unexpected"),
    8: IbStatus("IBV_WC_LOC_ACCESS_ERR", "code", "local memory may not be accessed like this"),
    9: IbStatus("IBV_WC_REM_INV_REQ_ERR", "code", "the peer refused the request as invalid"),
    10: IbStatus("IBV_WC_REM_ACCESS_ERR", "code", "the peer's memory may not be accessed like this"),
    11: IbStatus("IBV_WC_REM_OP_ERR", "peer", "the peer could not carry out the operation"),
    12: IbStatus("IBV_WC_RETRY_EXC_ERR", "path", "no acknowledgement came: the peer is dead, or the link, a switch or a port is"),
    13: IbStatus("IBV_WC_RNR_RETRY_EXC_ERR", "peer", "the peer is alive but posts no buffers: its host or GPU stands still"),
    21: IbStatus("IBV_WC_GENERAL_ERR", "local", "the device reports a transport error"),
}


def _completion(data: dict[str, Any]) -> dict[str, Any]:
    data["status"] = data.pop("status", None) or data.pop("status2", None) or data.pop("status3", None)
    return {key: value for key, value in data.items() if value is not None}


_PEER: Final = r"(?P<peer>[\w.:-]{1,60}(?:<\d{1,5}>)?)"
_COMPLETION: Final = (
    r"Got completion from peer "
    + _PEER
    + r" with (?:error (?P<status>\d{1,3})|status=(?:(?P<status2>\d{1,3})|\w{1,40}\((?P<status3>\d{1,3})\)))"
    r"(?:.{0,160}?vendor[_ ]err[= ](?P<vendor>\d{1,6}))?"
    r"(?:.{0,80}?localGid (?P<local_gid>[0-9a-fA-F:.]{2,50}))?(?:.{0,10}?remoteGids?(?:: )?(?P<remote_gid>[0-9a-fA-F:.]{2,50}))?"
    r"(?:.{0,80}?hca (?P<nic>[\w.-]{1,40}))?"
)

NCCL_GATES: Final[Gates] = (
    gate("Got completion", rule("ib_completion", "from peer", _COMPLETION, fix=_completion)),
    gate(
        " async e",
        rule(
            "ib_async",
            "Got ",
            r"NET/IB ?: ?(?:(?P<nic>[\w.-]{1,40}):(?P<port>\d{1,3}) )?Got (?P<level>non-fatal |fatal )?async (?:error )?event ?: ?"
            r"(?P<event>[\w /-]{1,60}?)(?:\((?P<number>\d{1,3})\))?\s*$",
        ),
    ),
    *(
        gate(word, rule("address", word, r"(?:Using|OOB) (?:\[\d{1,2}\])?[\w.-]{1,20}:\[?(?P<address>[\da-fA-F.:]{2,45}?)\]?<0>"))
        for word in ("Bootstrap : Using", "Bootstrap: Using", "; OOB ")
    ),
    gate(
        "NCCL WARN",
        rule(
            "ib_recovery",
            "Initiating recovery",
            r"Device (?P<device>\d{1,3}) marked as failed\. Initiating recovery\? (?P<answer>Yes|No)",
        ),
        rule(
            "ib_recovery",
            "ecover",
            r"NET/IB.{0,200}?(?P<answer>recovered|[Rr]ecovery (?:succeeded|complete\w?|success\w{0,3}|failed))",
        ),
        rule(
            "ib_call",
            "Call to ibv_",
            r"Call to (?P<call>ibv_\w{1,40}) failed with(?: error)? ?(?P<error>[^,]{0,120})(?:.{0,60}?\bdev "
            r"(?P<nic>[\w.-]{1,40}?)(?::(?P<port>\d{1,3}))?\b)?"
            r"(?:.{0,200}?remote GID (?P<remote_gid>[0-9a-fA-F:.]{2,50}))?",
        ),
        rule("ib_call", "ibv_", r"(?P<call>ibv_\w{1,40})(?:\(\))? failed with(?: error)? ?(?P<error>.{0,120})"),
        rule("code_mismatch", "posted incorrect receive info"),
        rule("code_mismatch", "collective mismatch error"),
        rule("peer_closed", "Connection closed by remote peer", r"Connection closed by remote peer " + _PEER),
        rule("peer_reset", "Call to ", r"Call to (?P<call>recv|send)(?: from| to)? " + _PEER + r" failed ?: ?(?P<error>.{0,80})"),
        rule(
            "peer_connect",
            "onnect",
            r"(?:Connect to|socketPollConnect to|connect to) "
            + _PEER
            + r" .{0,40}?(?:failed|exceeded|error|returned)(?P<error>.{0,80})",
        ),
        rule("peer_connect", "exceeded error retry count"),
        rule("config_network", "no socket interface found"),
        rule("config_network", "No interface found in the same subnet"),
        rule("config_version", "version mismatch"),
        rule("local_peer_died", "Could not receive type from localRank", r"from localRank (?P<local_peer>-?\d{1,4})"),
        rule(
            "local_peer_died",
            "Failed to execute operation",
            r"Failed to execute operation \w{1,30} from rank (?P<local_peer>-?\d{1,7})",
        ),
        rule("local_peer_died", "Accept failed"),
        rule("shm_full", "shared memory", r"(?:[Ee]rror|[Ff]ailed).{0,80}shared memory|shared memory.{0,80}(?:No space|failed)"),
        rule("nccl_warn", "NCCL WARN", r"NCCL WARN (?P<message>.{1,200})"),
    ),
    *(
        gate("nccl" + code, rule("nccl_error", code, r"\bnccl(?P<code>" + code + r"\w{0,20})"))
        for code in ("RemoteError", "SystemError", "InternalError", "UnhandledCudaError", "Invalid")
    ),
    gate(
        "remote process exited",
        rule("nccl_error", "remote process exited", r"(?P<code>remote process exited) or there was a network error"),
    ),
    gate("unhandled ", rule("nccl_error", " error", r"unhandled (?P<code>cuda|system) error")),
)
