"""What a local session is started with."""

from __future__ import annotations

import sys

import pytest

from watersmeet.runtime.spark.java import find_version
from watersmeet.runtime.spark.session import NEWEST_VFORK, jvm_settings

LAUNCH = "jdk.lang.Process.launchMechanism"


@pytest.mark.parametrize("java", [None, NEWEST_VFORK + 1])
def test_a_java_that_may_not_know_it_is_told_nothing(java):
    assert jvm_settings(java) == {}


def test_other_systems_are_told_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert jvm_settings(17) == {}


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="VFORK is Linux's")
def test_the_java_that_is_here_starts_processes_so(spark):
    """A JVM reads the property when it starts its first process; this asks one whether it would take it."""
    [option] = jvm_settings(find_version()).values()
    name, _, value = option.removeprefix("-D").partition("=")
    mechanism = spark.sparkContext._jvm.Class.forName("java.lang.ProcessImpl$LaunchMechanism")
    assert name == LAUNCH
    assert value in [str(one) for one in mechanism.getEnumConstants()]
