"""Flags, quantities and thread counts: what is wrong is named, defaults are the contract's."""

from pathlib import Path

import pytest

from distserve_proto.contract import ExitReason, Role
from distserve_worker.exiting import TERMINATION_LOG, WorkerFailure, report
from distserve_worker.server.arguments import parse_arguments, termination_log_of
from distserve_worker.server.pinning import thread_count
from distserve_worker.server.quantities import parse_bytes

NEEDED = ["--role", "prefill", "--model", "/m", "--served-name", "m"]
POD = {"DISTSERVE_POD_IP": "10.0.0.7"}


def test_the_defaults_are_the_contract() -> None:
    config = parse_arguments(NEEDED, POD)
    assert config.role is Role.PREFILL
    assert (config.grpc_port, config.data_port, config.http_port) == (9000, 9001, 9002)
    assert config.advertise_host == "10.0.0.7"
    assert config.kv_cache_bytes == 1 << 30
    assert config.max_model_length is None


def test_flags_are_read() -> None:
    config = parse_arguments(
        [*NEEDED, "--role", "decode", "--kv-cache-memory", "512Mi", "--max-model-length", "2048", "--dtype", "BF16",
         "--lease-seconds", "2.5", "--advertise-host", "fd00::7", "--grpc-port", "0"], POD
    )  # fmt: skip
    assert config.role is Role.DECODE
    assert config.kv_cache_bytes == 512 << 20
    assert config.max_model_length == 2048
    assert config.dtype == "BF16"
    assert config.lease_seconds == 2.5
    assert config.advertise_host == "fd00::7"
    assert config.grpc_port == 0


def test_a_gpu_worker_may_take_all_that_is_left_for_its_cache() -> None:
    assert parse_arguments([*NEEDED, "--device", "cuda", "--kv-cache-memory", "auto"], POD).kv_cache_bytes is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*NEEDED, "--kv-cache-memory", "auto"], "--kv-cache-memory auto is for --device cuda: give a quantity"),
        ([], "--role"),
        ([*NEEDED, "--role", "gateway"], "--role"),
        ([*NEEDED, "--dtype", "FP8"], "--dtype"),
        ([*NEEDED, "--kv-cache-memory", "lots"], "--kv-cache-memory"),
        ([*NEEDED, "--max-running", "0"], "--max-running"),
        ([*NEEDED, "--max-model-length", "-5"], "--max-model-length"),
        ([*NEEDED, "--grpc-port", "65536"], "--grpc-port"),
        ([*NEEDED, "--lease-seconds", "nan"], "--lease-seconds"),
        ([*NEEDED, "--drain-seconds", "soon"], "--drain-seconds"),
        ([*NEEDED, "--advertise-host", "not a host"], "--advertise-host"),
        ([*NEEDED, "--max-model", "5"], "--max-model"),
    ],
)
def test_a_wrong_flag_is_a_configuration_error_that_names_it(arguments: list[str], named: str) -> None:
    with pytest.raises(WorkerFailure, match=named) as failure:
        parse_arguments(arguments, POD)
    assert failure.value.reason is ExitReason.CONFIGURATION_INVALID


def test_a_worker_that_does_not_know_its_address_says_so() -> None:
    with pytest.raises(WorkerFailure, match="--advertise-host"):
        parse_arguments(NEEDED, {})


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("1Gi", 1 << 30), ("1.5Ki", 1536), ("512Mi", 512 << 20), ("2k", 2000), ("3M", 3_000_000), ("1e3", 1000)],
)
def test_quantities_are_kubernetes_quantities(text: str, number: int) -> None:
    assert parse_bytes(text) == number


@pytest.mark.parametrize("text", ["", "Gi", "-1Gi", "0", "1gi", "1 Gi", "NaN", "Infinity", "0.1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_bytes(text)


def test_threads_come_from_the_operator_then_from_openmp_then_from_the_cpus() -> None:
    assert thread_count({"DISTSERVE_THREADS": "3", "OMP_NUM_THREADS": "8"}) == 3
    assert thread_count({"OMP_NUM_THREADS": "8"}) == 8
    assert thread_count({}) >= 1


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_a_wrong_thread_count_names_its_variable(text: str) -> None:
    with pytest.raises(WorkerFailure, match="DISTSERVE_THREADS"):
        thread_count({"DISTSERVE_THREADS": text})


def test_the_reason_of_a_failure_is_left_where_the_kubelet_reads_it(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    for text in ("ü" * 5000, "x" + "ü" * 5000):
        report(WorkerFailure(ExitReason.MODEL_INVALID, text), log)
        assert log.read_bytes().decode().startswith("ModelInvalid: ")
        assert len(log.read_bytes()) in (4095, 4096)


@pytest.mark.parametrize("arguments", [[], ["--termination-log"], ["--termination", "file"]])
def test_without_a_file_the_reason_goes_where_the_kubelet_looks(arguments: list[str]) -> None:
    assert termination_log_of(arguments) == TERMINATION_LOG


def test_a_termination_log_that_cannot_be_written_is_no_second_failure(tmp_path: Path) -> None:
    report(WorkerFailure(ExitReason.MODEL_INVALID, "text"), tmp_path / "no" / "such" / "folder")
