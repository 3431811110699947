"""Where a signer belongs: all nodes agree, and a node that leaves moves only its own."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fencepost_nonces._routing import home_of

NODES = [f"http://node-{number}:8000" for number in range(5)]
SIGNERS = [f"signer:1:s{number}" for number in range(2000)]


def test_without_nodes_no_node_is_the_home() -> None:
    assert home_of("signer:1:a", []) is None


@given(st.permutations(NODES))
def test_the_order_of_the_list_does_not_matter(nodes: list[str]) -> None:
    assert home_of("signer:1:alice", nodes) == home_of("signer:1:alice", NODES)


def test_the_signers_are_spread_over_all_nodes() -> None:
    shares = Counter(home_of(signer, NODES) for signer in SIGNERS)

    assert set(shares) == set(NODES)
    assert min(shares.values()) > 300


def test_a_node_that_leaves_moves_its_own_signers_and_no_other() -> None:
    left = NODES[1:]
    for signer in SIGNERS:
        before = home_of(signer, NODES)
        if before != NODES[0]:
            assert home_of(signer, left) == before


def test_every_release_of_the_code_sends_a_signer_to_the_same_home() -> None:
    """Nodes of two versions run beside each other while one is rolled out."""
    homes = [home_of(f"signer:1:s{number}", NODES) for number in range(10)]
    assert homes == [NODES[place] for place in (2, 3, 3, 4, 1, 1, 0, 1, 4, 3)]
