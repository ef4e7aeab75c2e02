"""The operator's limit beside what the device has."""

from sie_core.contracts import DeviceMemory
from sie_core.memory import within_limit


def test_without_a_limit_the_device_counts():
    memory = DeviceMemory(5, 10, own=2)
    assert within_limit(memory, None) is memory


def test_a_limit_counts_what_this_process_uses():
    assert within_limit(DeviceMemory(500, 1000, own=20), 100) == DeviceMemory(20, 100, 20)


def test_a_device_with_less_left_than_the_limit_allows_counts():
    memory = DeviceMemory(950, 1000, own=20)
    assert within_limit(memory, 100) is memory


def test_where_nobody_can_tell_this_process_s_share_everything_counts():
    assert within_limit(DeviceMemory(60, 1000), 100) == DeviceMemory(60, 100, 60)
