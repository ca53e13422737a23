"""Object names and label values from any deployment name."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distserve_operator import names
from distserve_proto.contract import Role

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?")

# What the API server accepts as the name of a custom resource: a DNS-1123 subdomain.
deployments = st.from_regex(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", fullmatch=True).filter(
    lambda name: len(name) <= 253
)


def all_names(deployment: str) -> dict[str, list[str]]:
    """Names by kind: only objects of the same kind can be in each other's way."""
    return {
        "Deployment": [names.gateway(deployment)],
        "Service": [names.service(deployment)],
        "ServiceAccount": [names.gateway(deployment), names.worker_account(deployment)],
        "Pod": [names.worker_pod(deployment, role, 999, 0, "0123abcd", 17) for role in (Role.PREFILL, Role.DECODE)],
    }


def assert_legal(deployment: str) -> None:
    for name in (name for several in all_names(deployment).values() for name in several):
        assert len(name) <= 63
        assert DNS_1035.fullmatch(name)


@given(deployments)
def test_every_name_is_a_dns_label_of_at_most_63_characters(deployment: str) -> None:
    """B32."""
    assert_legal(deployment)
    value = names.label_value(deployment)
    assert len(value) <= 63
    assert LABEL.fullmatch(value)


@pytest.mark.parametrize("deployment", ["a" * 253, "7b", "llama-3.1-8b", "x." * 126 + "x", "a-" * 26 + "b"])
def test_awkward_names_work(deployment: str) -> None:
    """B32."""
    assert_legal(deployment)


@given(st.lists(deployments, min_size=2, max_size=6, unique=True))
def test_two_deployments_never_share_a_name(several: list[str]) -> None:
    for kind in all_names("x"):
        made = [name for deployment in several for name in all_names(deployment)[kind]]
        assert len(made) == len(set(made)), kind
    assert len({names.label_value(deployment) for deployment in several}) == len(several)


def test_names_that_differ_only_in_what_is_replaced_stay_apart() -> None:
    assert names.gateway("a.b") != names.gateway("a-b")
    assert names.gateway("a" * 100 + "x") != names.gateway("a" * 100 + "y")


def test_a_plain_name_stays_readable() -> None:
    assert names.gateway("smollm2") == "smollm2-gateway"
    assert names.endpoint("smollm2", "default", 8000) == "http://smollm2.default.svc:8000/v1"
    pod = names.worker_pod("smollm2", Role.PREFILL, 0, 0, "0123abcd", 1)
    assert pod == "smollm2-prefill-0-0-0123abcd-1"
    assert names.label_value("llama-3.1") == "llama-3.1"


@given(deployments, st.sampled_from([Role.PREFILL, Role.DECODE]), st.integers(0, 999), st.integers(0, 99))
def test_a_pods_name_tells_its_identity(deployment: str, role: Role, instance: int, attempt: int) -> None:
    name = names.worker_pod(deployment, role, instance, 0, "0123abcd", attempt)
    assert names.identity_of(name) == names.PodIdentity(role, instance, 0, "0123abcd", attempt)


@pytest.mark.parametrize(
    "name", ["chat-gateway-5c9-x2", "chat", "chat-prefill-0-0-0123abcd", "chat-prefill-0-0-UPPER123-0"]
)
def test_other_names_tell_none(name: str) -> None:
    assert names.identity_of(name) is None


@pytest.mark.parametrize("text", ["ü" * 10, "-x-", "a/b", "A B", "", "." * 70])
def test_any_text_becomes_a_legal_label_value(text: str) -> None:
    assert LABEL.fullmatch(names.label_value(text))
