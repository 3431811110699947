"""The compatibility profile: names that earlier systems used for what Fencepost does.

Operators who come from such a system have dashboards, alerts, scripts and settings with its names. The
service that replaces the system declares them in one table, a `CompatibleNames`, which its plugin names. The
service uses the table unless COMPATIBLE_NAMES is false; the library by itself uses no such name. All names:
docs/reference/compatible-names.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OldMetric:
    """A metric's second name, exported from the same value at each scrape.

    Labels of the metric that are not in `labels` are added up. `where` selects samples by the values of a
    label, `values` renames the values of a label, and `factor` converts the unit.
    """

    name: str
    metric: str
    labels: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    factor: float = 1


@dataclass(frozen=True, slots=True)
class OldSetting:
    """A second name of the setting `env`: a variable, and a place in config.yaml.

    The setting's own name has precedence. `factor` converts a number into the setting's own unit.
    """

    name: str
    env: str
    file: str
    factor: float = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibleNames:
    """The names of one earlier system."""

    metrics: tuple[OldMetric, ...] = ()
    settings: tuple[OldSetting, ...] = ()
    redis_keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """By setting, named as its environment variable: the default that the earlier system had."""
    views: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Views of the schema `fencepost`, and the columns that they had. The service's migration makes them."""
    own: tuple[str, ...] = ()
    """Settings and HTTP paths of the earlier system that are the service's own, with the profile or not."""
