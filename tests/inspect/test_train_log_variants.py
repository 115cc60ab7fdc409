"""Variants of the families that operators meet in training logs: who is root, who only follows, and when there is nothing to do."""

# ruff: noqa: E501, E741 (raw machine text is kept as it is printed)

import json
from pathlib import Path

import pytest
from inspect_cases import Case, check, megatron, nccl_timeout, steps

RANKS = {str(rank): [f"n{rank // 4}", rank % 4] for rank in range(16)}


def ib12(
    local: str,
    peer: str,
    status: str = "IBV_WC_RETRY_EXC_ERR(12)",
    hca: str = "mlx5_0",
    gid: str = "::ffff:10.78.0.6",
    second: int = 41,
) -> str:
    return (
        f"[2026-06-11 03:12:{second}] {local}:7741:7802 [1] transport/net_ib/p2p.cc:688 NCCL WARN NET/IB: Got completion from peer {peer}<44120> with status={status} "
        f"opcode=IBV_WC_SEND(0) vendor_err=129  localGid ::ffff:10.78.0.31 remoteGids{gid} hca {hca}\n"
    )


HF = "{{'loss': {loss}, 'grad_norm': {grad}, 'learning_rate': 1.9e-05, 'epoch': {epoch}}}\n"
REMOTE = "[rank{r}] 2026-06-11 03:12:5{r} ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"

CASES = [
    # --- numbers -----------------------------------------------------------------------------------------------------
    Case("hf-zero-loss-and-nan-norm", "".join(HF.format(loss=l, grad=g, epoch=e / 10) for e, (l, g) in enumerate([(1.2, 0.4), (1.1, 0.5), (0.0, "nan"), (0.0, "nan"), (0.0, "nan")])),
         {"app", "data"}, {"page"}, {"job.loss_nan"}, {"job": "j1"}, {"job": "j1"}),
    Case("torchtitan-nan", "".join(f"[rank0]:2026-01-01 00:00:{n:02d},100 - root - INFO - step: {n:2d}  loss: {l}  grad_norm: {g}  memory: 40.2GiB(42%)  tps: 7,123\n"
         for n, (l, g) in enumerate([("7.1", "2.1"), ("6.9", "2.0"), ("6.5", "1.9"), ("nan", "nan"), ("nan", "nan")])), {"app", "data"}, {"page"}, {"job.loss_nan"}),
    Case("lightning-nan", "".join(f"Epoch 0:  {n}%|█▏        | {n}/100 [00:10<01:00,  1.1it/s, v_num=3, reduced_train_loss={l}, global_step={n}.0]\n"
         for n, l in enumerate(["2.31", "2.30", "nan", "nan", "nan"])), {"app", "data"}, {"page"}, {"job.loss_nan"}),
    Case("fp16-scaling-at-start", "".join(f"[2024-09-15 00:13:{n:02d},307] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2**(32-n)}, reducing to {2**(31-n)}\n"
         for n in range(12)) + steps(20, 6)),
    Case("fp16-megatron-skips-at-start", "".join(f" iteration {n:8d}/  1000 | elapsed time per iteration (ms): 700.0 | learning rate: 6.0E-05 | loss scale: {2.0**(32-n)} | number of skipped iterations:   1 | number of nan iterations:   0 |\n" for n in range(1, 9)) + steps(9, 5, 8.0)),
    Case("spike-that-recovers", steps(100, 12) + megatron(112, "3.9E+00", "4.1") + megatron(113, "2.8E+00", "2.2") + steps(114, 8)),
    Case("divergence", steps(100, 12) + "".join(megatron(112 + n, f"{4 + n / 2:.6E}", "9.1") for n in range(8)), {"app", "data"}, {"page"}, {"job.loss_spike", "job.loss_nan"}),
    Case("stands-still", steps(100, 3, 11.0) + "".join(megatron(103 + n, "1.109441E+01", "0.000") for n in range(8)), {"app", "data"}, {"page"}, {"job.loss_stagnant"}),
    Case("one-nan-that-healed", steps(100, 6) + megatron(106, "nan", "nan") + steps(107, 8)),
    Case("resume-that-is-none", steps(4000, 8) + "successfully loaded checkpoint from /ckpt at iteration 4000\n" + steps(4001, 6, 9.8), {"app", "data"}, {"page"}, {"job.resume_mismatch"}),
    Case("healthy-run-with-eval", steps(100, 8) + " validation loss at iteration 108 | lm loss value: 2.900000E+00 | lm loss PPL: 1.8E+01 |\n" + steps(109, 6)),
    Case("words-that-contain-nan", "INFO check_for_nan_in_loss_and_grad ........ True\nINFO using nanoseconds, banana, finance, nan_to_num(x)\nINFO inf.yaml loaded, error_rate=0\n" + steps(1, 6)),
    # --- who made the NaN ---------------------------------------------------------------------------------------------
    Case("nan-repeats-on-another-gpu", "ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 3 at iteration #41207 invocation #2 (message='found NaN in local forward loss calculation')\n"
         "WARNING:megatron.core.rerun_state_machine:First rerun: unexpected result is reproducible within the tolerance (nan = nan)\n"
         "WARNING:megatron.core.rerun_state_machine:Second rerun: unexpected result is reproducible on a different GPU, therefore it was likely correct (nan = nan)\n"
         "ERROR:megatron.core.rerun_state_machine:Rank 3, node n9, device 1, iteration #41207: Correct result (but possible Application error)\n", {"app", "data"}, {"page"}, {"job.loss_nan"}, {"job": "j1"}, {"job": "j1"}),
    Case("nan-differs-on-another-gpu", "ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 3 at iteration #41207 invocation #2 (message='found NaN in local forward loss calculation')\n"
         "ERROR:megatron.core.rerun_state_machine:Rank 3, node n0, device 3, iteration #41207: First rerun: unexpected result is reproducible within the tolerance (nan = nan)\n"
         "WARNING:megatron.core.rerun_state_machine:Second rerun: unexpected result is not reproducible on a different GPU, therefore was likely incorrect (2.11 != nan)\n"
         "ERROR:megatron.core.rerun_state_machine:Rank 3, node n9, device 1, iteration #41207: Possible persistent error!\n", {"gpu"}, {"drain"}, {"gpu.sdc"}, {"node": "n0", "gpu": 3}, {"job": "j1"}),
    Case("one-transient-result", "ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 3 at iteration #41207 invocation #2 (message='x')\n"
         "ERROR:megatron.core.rerun_state_machine:Rank 3, node n0, device 3, iteration #41207: Possible transient error!\n" + steps(41208, 5)),
    Case("nan-in-the-batch", steps(100, 5) + "[rank7] 2026-01-01 00:00:01 ERROR found NaN in input batch (shard-00231.tar, sample 17)\n[rank7] 2026-01-01 00:00:01 AssertionError: NaN in input batch\n", {"data", "app"}, {"page"}, subject={"rank": 7}),
    # --- network -------------------------------------------------------------------------------------------------------
    Case("many-complain-about-one-node", "".join(ib12(f"n{n}", "10.0.0.9", gid=f"::ffff:10.78.0.{20 + n}") for n in (1, 2, 3, 4)) + REMOTE.format(r=1),
         {"node", "nic"}, {"restart"}, {"node.lost"}, {"node": "n9"}, {"job": "j1", "addresses": {"10.0.0.9": "n9"}}),
    Case("one-device-cannot-reach-many", "".join(ib12("n1", f"10.0.0.{n}", hca="mlx5_3", gid=f"::ffff:10.78.0.{n}") for n in (4, 5, 6)) + REMOTE.format(r=1), {"nic", "link"}, {"restart"}, {"nic.down"}, {"node": "n1", "nic": "mlx5_3"}, {"job": "j1"}),
    Case("receiver-not-ready", "".join(ib12(f"n{n}", "10.0.0.9", "IBV_WC_RNR_RETRY_EXC_ERR(13)") for n in (1, 2, 3)), {"node", "gpu"}, {"restart"}, set(), {"node": "n9"}, {"addresses": {"10.0.0.9": "n9"}}),
    Case("access-error-is-code", "".join(ib12(f"n{n}", "10.0.0.9", "IBV_WC_REM_ACCESS_ERR(10)") for n in (1, 2)), {"app"}, {"page"}),
    Case("old-form-status-12", "".join(f"n{n}:55:77 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.9<33333> with error 12, opcode 0, len 0, vendor err 129 (Send)\n" for n in (1, 2, 3)),
         {"node", "nic"}, {"restart"}, set(), {"node": "n9"}, {"addresses": {"10.0.0.9": "n9"}}),
    Case("survived-and-as-fast-again", steps(100, 5) + ib12("n1", "10.0.0.9") + "[2026-06-11 03:12:41] n1:7741:7802 [1] transport/net_ib/p2p_resiliency.cc:376 NCCL WARN NET/IB: Device 0 marked as failed. Initiating recovery? Yes (send comm=0x7e)\n"
         + steps(105, 3) + "[2026-06-11 03:20:18] n1:7741:7790 [1] transport/net_ib/common.cc:179 NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: port active(9)\n" + steps(108, 5)),
    # --- collectives ---------------------------------------------------------------------------------------------------
    Case("desync-report-names-the-rank", "".join(nccl_timeout(rank, 77, 79, 76) for rank in (0, 1, 2)) +
         "[rank0]:[E626 04:13:00.1 ProcessGroupNCCL.cpp:1] \n\t - [0] Timeout at collective: ALLREDUCE, #77\n\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n\t   - [6] finished collective #76, but didn't join collective #77 (count from 1)\n",
         {"node", "app", "gpu"}, {"restart"}, {"job.hang"}, {"rank": 6, "node": "n1"}, {"job": "j1", "ranks": RANKS}),
    Case("all-joined-nobody-behind", "".join(nccl_timeout(rank, 77, 79, 76) for rank in range(16)), {"none", "nic", "link", "switch"}, {"restart", "page"}, {"job.hang"}, {"job": "j1"}, {"job": "j1", "ranks": RANKS}),
    Case("one-rank-silent", "".join(nccl_timeout(rank, 77, 79, 76) for rank in range(16) if rank != 9), {"node", "app", "gpu"}, {"restart"}, {"job.hang"}, {"rank": 9, "node": "n2"}, {"job": "j1", "ranks": RANKS}),
    Case("rank-0-still-saves", "[rank0] 2026-06-26 04:02:00 saving checkpoint to /ckpt/step_100\n[rank0] 2026-06-26 04:08:00 still writing checkpoint after 360 s\n"
         + "".join(nccl_timeout(rank, 77, 78, 76) for rank in (1, 2, 3)) + "[rank0]:[E626 04:13:05.2 ProcessGroupNCCL.cpp:1682] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received a dump signal due to a collective timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: 76, last completed NCCL work: 76.\n",
         {"storage", "app"}, {"restart", "page"}, set(), {"rank": 0}, {"job": "j1", "ranks": RANKS}),
    Case("other-collective-on-one-rank", "".join(nccl_timeout(rank, 77, 79, 76) for rank in range(7)) + nccl_timeout(7, 77, 79, 76, op="ALLGATHER"), {"app"}, {"page", "restart"}, {"job.desync"}, {"rank": 7}, {"job": "j1", "ranks": RANKS}),
    Case("xid-explains-the-timeout", "[n1] [20113.774120] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n" + "".join(nccl_timeout(rank, 77, 79, 76) for rank in (0, 1, 2)),
         {"gpu"}, {"restart"}, {"gpu.fallen_off_bus"}, {"node": "n1"}, {"job": "j1", "ranks": RANKS}),
    Case("barrier-names-ranks", "[rank0] RuntimeError: [Rank 0]: Ranks 5 failed to pass monitoredBarrier in 600000 ms\n", {"node", "app"}, {"restart"}, set(), {"rank": 5}, {"ranks": RANKS}),
    # --- planned ---------------------------------------------------------------------------------------------------------
    Case("preempted", "slurmstepd: error: *** JOB 90412 ON n1 CANCELLED AT 2026-07-10T00:00:01 DUE TO PREEMPTION ***\nsrun: error: n2: task 9: Terminated\n" + ib12("n2", "10.0.0.9", second=59).replace("2026-06-11 03:12", "2026-07-10 00:00")),
    Case("cancelled-by-user", steps(10, 4) + "slurmstepd: error: *** STEP 90412.0 ON n1 CANCELLED AT 2026-07-10T00:00:01 ***\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n[rank3] 2026-07-10 00:00:03 ncclRemoteError: A call failed possibly due to a network error\n"),
    Case("kubernetes-preemption", "2026-07-10T00:00:01Z Normal  Preempted  pod/train-worker-3  Preempted by pod 5f0c on node n1\n2026-07-10T00:00:02Z Normal  Killing  pod/train-worker-3  Stopping container pytorch\n[rank0] 2026-07-10 00:00:05 received SIGTERM, saving\n[rank2] 2026-07-10 00:00:09 torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, remote process exited\n"),
    Case("training-is-done", steps(10, 4) + "[after training is done] datetime: 2026-07-10 00:00:00\n[rank3]:[W1103 04:13:01.519304171 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.\n[rank2] 2026-07-10 00:00:09 [../gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.1]:1234\n"),
    Case("ctrl-c", steps(10, 4) + "^CTraceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nKeyboardInterrupt\n[rank1] RuntimeError: [../gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.1]:1234\n"),
    Case("failed-before-the-limit", "[rank7] 2026-07-09 23:10:02 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.12 GiB. GPU 3 has a total capacity of 79.11 GiB\n"
         "slurmstepd: error: *** JOB 90412 ON n1 CANCELLED AT 2026-07-10T00:00:01 DUE TO TIME LIMIT ***\n", {"app"}, {"page"}, {"job.oom"}, {"rank": 7}),
    Case("node-failure-is-no-plan", "slurmstepd: error: *** JOB 90412 ON n3 CANCELLED AT 2026-07-10T00:00:01 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n", {"node"}, {"restart"}, {"node.lost"}, {"node": "n3"}),
    Case("hung-until-the-limit", "".join(f"[2026-07-09 12:{n:02d}:00] iteration {n:8d}/ 1000 | elapsed time per iteration (ms): 60000.0 | lm loss: 2.{n:02d}1E+00 | grad norm: 0.3 |\n" for n in range(20))
         + "slurmstepd: error: *** JOB 90412 ON n1 CANCELLED AT 2026-07-10T00:00:01 DUE TO TIME LIMIT ***\n", {"none", "node", "app"}, {"page", "restart"}, {"job.hang"}),
    # --- root or teardown -------------------------------------------------------------------------------------------------
    Case("exception-on-one-rank", "[rank11] 2026-06-11 03:12:02 Traceback (most recent call last):\n[rank11] 2026-06-11 03:12:02 ValueError: expected 4096 columns, got 4095\n" + "".join(REMOTE.format(r=r) for r in (1, 2, 3)), {"app", "data"}, {"page"}, {"job.app_error"}, {"rank": 11, "node": "n2"}, {"ranks": RANKS}),
    Case("ecc-error-of-one-gpu", "[rank1] 2026-06-11 03:12:02 torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n" + REMOTE.format(r=2), {"gpu"}, {"restart"}, set(), {"rank": 1, "node": "n0", "gpu": 1}, {"ranks": RANKS}),
    Case("host-killed-a-rank", "[n1] [9912.114207] Out of memory: Killed process 5566 (python3) total-vm:9912220kB, anon-rss:9001220kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:2000kB oom_score_adj:0\n"
         "E0419 09:41:13.101 5490 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: -9) local_rank: 1 (pid: 5566) of binary: python\n" + REMOTE.format(r=2), {"app", "node"}, {"page"}, {"job.oom"}, {"node": "n1"}, {"job": "j1"}),
    Case("disk-full", "[rank0] 2026-06-11 03:12:02 OSError: [Errno 28] No space left on device: '/ckpt/step_100/x.pt'\n" + REMOTE.format(r=2), {"storage"}, {"page"}, {"storage.full"}, {"rank": 0}),
    Case("loader-worker-killed", "[rank3] 2026-06-11 03:12:02 RuntimeError: DataLoader worker (pid 99) is killed by signal: Killed. \n" + REMOTE.format(r=2), {"app", "node", "data"}, {"page"}, set(), {"rank": 3}),
    Case("shared-memory-too-small", "[rank3] 2026-06-11 03:12:02 ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n[rank3] 2026-06-11 03:12:02 RuntimeError: DataLoader worker (pid 99) is killed by signal: Bus error. \n", {"app", "data", "node"}, {"page"}, set(), {"rank": 3}),
    Case("illegal-access-is-code", "[rank3] 2026-06-11 03:12:02 RuntimeError: CUDA error: an illegal memory access was encountered\n[rank3] CUDA kernel errors might be asynchronously reported at some other API call\n" + REMOTE.format(r=2), {"app"}, {"page"}, {"job.app_error"}, {"rank": 3}),
    Case("root-printed-late", "n1:5501:5822 [2] misc/socket.cc:46 NCCL WARN socketProgressOpt: Call to recv from 10.0.0.9<41877> failed : Connection reset by peer\nn2:5501:5822 [2] misc/socket.cc:46 NCCL WARN socketProgress: Connection closed by remote peer 10.0.0.9<41877>\n"
         "[n9][rank12] 2026-06-11 03:12:05 RuntimeError: shape '[2, 3]' is invalid for input of size 5\n", {"app"}, {"page"}, {"job.app_error"}, {"rank": 12}, {"addresses": {"10.0.0.9": "n9"}}),
    Case("peer-vanished", "".join(f"n{n}:5501:5822 [2] misc/socket.cc:46 NCCL WARN socketProgress: Connection closed by remote peer 10.0.0.9<418{n}>\n" for n in (1, 2, 3)) + REMOTE.format(r=1), {"node"}, {"restart"}, {"node.lost"}, {"node": "n9"}, {"addresses": {"10.0.0.9": "n9"}}),
    Case("elastic-block-names-the-first", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py FAILED\n-----\nFailures:\n[1]:\n  time      : 2026-01-15_05:44:29\n  host      : n2\n  rank      : 9 (local_rank: 1)\n  exitcode  : -6 (pid: 6175)\n  error_file: <N/A>\n-----\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-01-15_05:44:28\n  host      : n2\n  rank      : 8 (local_rank: 0)\n  exitcode  : -11 (pid: 6174)\n  error_file: <N/A>\n=====\n",
         {"app"}, {"page", "restart"}, set(), {"rank": 8, "node": "n2"}),
    Case("gloo-earliest-line-counts", "[rank1] 2026-06-11 03:12:01 RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:544] Read error [10.0.0.9]:1234: Connection reset by peer\n"
         "[rank0] 2026-06-11 03:12:02 RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.1]:1234\n", {"node"}, {"restart"}, set(), {"node": "n9"}, {"addresses": {"10.0.0.9": "n9", "10.0.0.1": "n1"}}),
    Case("retried-and-went-on", steps(10, 5) + "[rank3] 2026-06-11 03:12:02 WARNING retry 1/5 after botocore.exceptions.EndpointConnectionError: Could not connect\n[rank3] 2026-06-11 03:12:02 ConnectionResetError: [Errno 104] Connection reset by peer\n" + steps(15, 5)),
    Case("loader-stall-alone", steps(10, 3) + "".join(f"[rank{r}] 2026-11-03 04:09:11 dataloader: waiting for next batch for 900 s\n" for r in range(8)), {"storage", "data"}, {"restart", "page"}, {"job.dataloader_stall"}, {}, {"job": "j1", "ranks": RANKS}),
    Case("ordinary-text", "INFO starting\nINFO rank 0: error_rate=0.0\nWARNING: torch.cuda.amp.autocast is deprecated\nINFO Errors: 0\nINFO no error found\n" + steps(1, 5)),
    Case("process-prints-an-xid", "[rank3] 2026-06-11 03:12:02 INFO docs say: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n" + steps(1, 5)),
    # --- further forms of the same families -----------------------------------------------------------------------------
    Case("host-memory-by-kernel-and-launcher", "Nov  3 04:04:11 n1 kernel: python3 invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0\nNov  3 04:04:11 n1 kernel: Out of memory: Killed process 5566 (python3) total-vm:9912220kB, anon-rss:9001220kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:2000kB oom_score_adj:0\n"
         "E1103 04:04:13.101 5490 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: -9) local_rank: 1 (pid: 5566) of binary: python\n[rank2] 2026-11-03 04:04:12 ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n", {"app", "node"}, {"page"}, {"job.oom"}, {"node": "n1"}, {"job": "j1"}),
    Case("pod-killed-for-memory", "2026-07-10T00:00:01Z Warning  OOMKilled  pod/train-worker-3  container pytorch: exit code 137\n" + REMOTE.format(r=1) + REMOTE.format(r=2), {"app", "node"}, {"page"}, {"job.oom"}),
    Case("node-pressure-is-no-plan", "2026-07-10T00:00:01Z Warning  Evicted  pod/train-worker-3  The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi.\n" + REMOTE.format(r=1), {"app", "node"}, {"page"}, {"job.oom"}),
    Case("own-check-of-one-rank", steps(10, 3) + "[rank5] AssertionError: Rank 5: found NaN in local grad norm in backward pass before data-parallel communication collective. Device: 5, node: n1\n" + REMOTE.format(r=1), {"app", "data", "gpu"}, {"page", "restart"}, {"job.loss_nan"}, {"rank": 5, "node": "n1"}),
    Case("nested-groups-inner-rank-behind", "".join(nccl_timeout(r, 410, 411, 409).replace("PG ID 0 PG GUID 0(default_pg)", "PG ID 5 PG GUID 15(dp_0)").replace(f"[Rank {r}] Watchdog", "[PG ID 5 PG GUID 15(dp_0) Rank 1] Watchdog") for r in (0, 8, 12))
         + "".join(nccl_timeout(r, 9921, 9921, 9920).replace("PG ID 0 PG GUID 0(default_pg)", "PG ID 2 PG GUID 7(tp_1)").replace(f"[Rank {r}] Watchdog", "[PG ID 2 PG GUID 7(tp_1) Rank 0] Watchdog") for r in (4, 6, 7))
         + "[rank5]:[E626 04:13:05.2 ProcessGroupNCCL.cpp:1682] [PG ID 2 PG GUID 7(tp_1) Rank 1] Received a dump signal due to a collective timeout from  rank 4 and we will try our best to dump the debug info. Last enqueued NCCL work: 9920, last completed NCCL work: 9920.\n",
         {"node", "app", "gpu", "data"}, {"restart"}, {"job.hang"}, {"rank": 5, "node": "n1"}, {"job": "j1", "ranks": RANKS}),
    Case("old-pytorch-forms", "".join(f"[E ProcessGroupNCCL.cpp:474] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out.\n" for r in range(16) if r != 3)
         + "[E ProcessGroupNCCL.cpp:488] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n[E ProcessGroupNCCL.cpp:494] To avoid data inconsistency, we are taking the entire process down.\n",
         {"node", "app", "gpu"}, {"restart"}, {"job.hang"}, {"rank": 3, "node": "n0"}, {"job": "j1", "ranks": RANKS}),
    Case("watchdog-of-one-rank-stuck", "".join(nccl_timeout(r, 77, 79, 76) for r in (0, 1, 2)) + "[rank6]:[E626 04:13:09.1 ProcessGroupNCCL.cpp:1400] [PG ID 0 PG GUID 0(default_pg) Rank 6] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API hang blocking the watchdog\n",
         {"node", "gpu", "app"}, {"restart"}, set(), {"rank": 6, "node": "n1"}, {"job": "j1", "ranks": RANKS}),
    Case("store-of-rank-0-gone", "".join(f"[rank{r}]:[W1103 04:13:0{r}.519304171 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=4, addr=[n1]:55, remote=[n0]:29500): failed to recv, got 0 bytes\n" for r in (3, 4, 5)), {"node", "app", "none"}, {"restart"}, set(), {}, {"ranks": RANKS}),
    Case("stop-by-the-launcher", "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4412 got signal: 15\n" + REMOTE.format(r=1)),
    Case("spot-notice-and-a-clean-save", steps(10, 4) + "2026-07-10 00:00:00 WARNING spot interruption notice: instance will be reclaimed in 120 s\n[rank0] 2026-07-10 00:00:05 received SIGTERM, saving checkpoint\n[rank0] 2026-07-10 00:00:30 successfully saved checkpoint from iteration 14 to /ckpt\n" + REMOTE.format(r=1).replace("2026-06-11 03:12", "2026-07-10 00:01")),
    Case("one-nodes-mount-fails", "".join(f"[n1][rank{r}] 2026-06-11 03:12:0{r} OSError: [Errno 116] Stale file handle: '/data/shard-{r}.bin'\n" for r in (4, 5, 6)) + "[n2][rank8] 2026-06-11 03:12:09 ncclRemoteError: A call failed possibly due to a network error\n", {"node", "storage"}, {"restart", "page"}, {"storage.hang"}, {"node": "n1"}),
    Case("leaf-switch-by-counting", "".join(ib12(f"n{a}", f"10.0.0.{b}", hca="mlx5_0") for a, b in ((1, 3), (2, 3), (1, 4), (2, 4))), {"switch"}, {"page"}, {"switch.down"}, {"switch": "leaf1"},
         {"topology": {"nics": {"n1": {"mlx5_0": "leaf1", "mlx5_1": "leaf2"}, "n2": {"mlx5_0": "leaf1", "mlx5_1": "leaf2"}}}, "addresses": {"10.0.0.3": "n3", "10.0.0.4": "n4"}}),
    Case("local-port-error-then-death", "[2026-06-11 03:12:40] n1:7741:7790 [1] transport/net_ib.cc:98 NCCL WARN NET/IB : mlx5_4:1 Got async event : port error\n" + ib12("n1", "10.0.0.9", hca="mlx5_4") + ib12("n1", "10.0.0.9", "IBV_WC_WR_FLUSH_ERR(5)", hca="mlx5_4")
         + "[rank1] 2026-06-11 03:12:50 torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, unhandled system error\n", {"nic", "link"}, {"restart"}, {"nic.down"}, {"node": "n1", "nic": "mlx5_4"}),
    Case("nemo-two-lines", "".join(f"Training epoch 0, iteration {n}/1000 | lr: 1e-05 | global_batch_size: 8 | global_step: {n} | reduced_train_loss: {l} | train_step_timing in s: 1.2 | consumed_samples: {n * 8}\n" for n, l in enumerate(["10.2", "9.9", "nan", "nan"])), {"app", "data"}, {"page"}, {"job.loss_nan"}),
    Case("json-lines-with-infinity", "".join(json.dumps({"step": n, "loss": l, "grad_norm": 1.0}) + "\n" for n, l in enumerate([3.2, 3.1, float("inf"), float("inf")])), {"app", "data"}, {"page"}, {"job.loss_nan"}),
    Case("slurm-labels-and-python-error", " 0: INFO step 5\n11: Traceback (most recent call last):\n11: KeyError: 'input_ids'\n 3: ncclRemoteError: A call failed possibly due to a network error\n", {"app", "data"}, {"page"}, {"job.app_error"}, {"rank": 11}),
    Case("two-attempts-same-cause", (steps(10, 4) + "[rank7] 2026-07-09 23:10:02 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.12 GiB. GPU 3 has a total capacity of 79.11 GiB\n" + "Worker group FAILED. 2/3 attempts left; will restart worker group\n" + "successfully loaded checkpoint from /ckpt at iteration 8\n") * 2 + steps(9, 4), {"app"}, {"page"}, {"job.oom"}, {"rank": 7}),
    Case("odd-rank-compiles", "[rank6] 2026-06-26 04:02:00 torch.compile: recompiling graph 17 (cache miss)\n" + "".join(nccl_timeout(r, 77, 79, 76) for r in range(16) if r != 6), {"app"}, {"restart", "page"}, {"job.hang"}, {"rank": 6}, {"job": "j1", "ranks": RANKS}),
    Case("odd-rank-generates-samples", "[rank0] 2026-06-26 04:02:00 generating sample 311/512\n" + "".join(nccl_timeout(r, 77, 79, 76) for r in range(1, 16)), {"app"}, {"restart", "page"}, {"job.hang"}, {"rank": 0}, {"job": "j1", "ranks": RANKS}),
    Case("odd-rank-was-only-training", "[rank6] 2026-06-26 04:02:00 step 100 global batch size 128 forward 0.3 s\n" + "".join(nccl_timeout(r, 77, 79, 76) for r in range(16) if r != 6), {"node"}, {"restart"}, {"job.hang"}, {"rank": 6}, {"job": "j1", "ranks": RANKS}),
    Case("broken-gpu-before-the-time-limit", "[n1] [20113.774120] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n" + REMOTE.format(r=2) + "slurmstepd: error: *** JOB 90412 ON n1 CANCELLED AT 2026-07-10T00:00:01 DUE TO TIME LIMIT ***\n", {"gpu"}, {"restart", "drain"}, {"gpu.fallen_off_bus"}, {"node": "n1"}),
    Case("row-remap-while-training-goes-on", steps(10, 4) + "[n1] [20113.774120] NVRM: Xid (PCI:0000:3b:00): 64, pid=1, name=python3, Row Remapper Error: Failed to remap row\n" + steps(14, 6), {"gpu"}, {"drain", "restart"}, {"gpu.row_remap_failed"}, {"node": "n1"}),
    Case("kernel-words-without-a-prefix", "[n1] kernel: Out of memory: Killed process 5566 (python3) total-vm:9912220kB, anon-rss:9001220kB\nE0419 09:41:13.101 5490 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: -9) local_rank: 1 (pid: 5566) of binary: python\n" + REMOTE.format(r=2), {"app", "node"}, {"page"}, {"job.oom"}, {"node": "n1", "rank": 5}, {"ranks": RANKS}),
    Case("blocked-task-explains-the-rank", "".join(nccl_timeout(r, 77, 79, 76) for r in range(16) if r != 6) + "[n1] [9912.1] INFO: task python3:61230 blocked for more than 122 seconds.\n[n1] [9912.2] Call Trace:\n[n1] [9912.3]  nfs_wait_bit_killable+0x24/0xb0 [nfs]\n", {"node", "storage"}, {"restart", "drain", "page"}, set(), {"node": "n1"}, {"ranks": RANKS, "job": "j1"}),
    Case("handlers-at-start-are-no-order", "INFO registered handler on SIGTERM and SIGUSR1\n[rank7] ValueError: bad shape\n" + REMOTE.format(r=1), {"app"}, {"page"}, {"job.app_error"}, {"rank": 7}),
    Case("nan-at-the-same-step-again", steps(8800, 6) + megatron(8806, "nan", "nan") + megatron(8807, "nan", "nan") + "successfully loaded checkpoint from /ckpt at iteration 8800\n" + steps(8801, 5) + megatron(8806, "nan", "nan") + megatron(8807, "nan", "nan"), {"data", "app"}, {"page"}, {"job.loss_nan"}, {"job": "j1"}, {"job": "j1"}),
    Case("stopped-but-nothing-was-saved", "2026-07-10T00:00:02Z Normal  Preempted  pod/train-worker-3  Preempted by pod 5f0c on node n1\n[rank0] 2026-07-10 00:00:05 received SIGTERM, saving checkpoint\n[rank0] 2026-07-10 00:00:30 OSError: [Errno 28] No space left on device: '/ckpt/step_100/x.pt'\n", {"storage"}, {"page"}, {"storage.full"}, {"rank": 0}),
    Case("fault-of-the-program-seen-by-the-kernel", "[n1] [20113.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=5566, name=python3, Ch 00000012, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_4 faulted @ 0x7e31_4c000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ\n" + REMOTE.format(r=1) + REMOTE.format(r=2), {"app"}, {"page"}, {"job.app_error"}, {"node": "n1"}),
    Case("long-steps-without-a-word", steps(10, 12, ms=4400) + steps(22, 8, ms=6900)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_training_log_is_read_as_an_operator_would(case: Case, tmp_path: Path) -> None:
    check(case, "train_log", tmp_path)
