"""The catalog: the served models with their configs, families and options.

Nothing here loads weights or an adapter.
"""

from sie_core.catalog.building import build_base, build_catalog, open_folder, require_one_source
from sie_core.catalog.cards import read_card
from sie_core.catalog.configs.ids import is_model_id
from sie_core.catalog.configs.reading import ConfigError, parse_config, read_config
from sie_core.catalog.configs.snapshot import Catalog, Problem
from sie_core.catalog.families import Candidate, FamilyChoice, choose_family
from sie_core.catalog.options.engine_options import ENGINE_OPTIONS
from sie_core.catalog.options.options import EffectiveOptions, check_profile, resolve_options
from sie_core.catalog.options.postprocess_options import config_name, is_on, parameters_of, profile_options
from sie_core.catalog.sightings import Sighting, look, see

__all__ = [
    "ENGINE_OPTIONS",
    "Candidate",
    "Catalog",
    "ConfigError",
    "EffectiveOptions",
    "FamilyChoice",
    "Problem",
    "Sighting",
    "build_base",
    "build_catalog",
    "check_profile",
    "choose_family",
    "config_name",
    "is_model_id",
    "is_on",
    "look",
    "open_folder",
    "parameters_of",
    "parse_config",
    "profile_options",
    "read_card",
    "read_config",
    "require_one_source",
    "resolve_options",
    "see",
]
