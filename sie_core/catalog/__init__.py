"""The catalog: the served models with their configs, families and options.

Nothing here loads weights or an adapter.
"""

from sie_core.catalog.building import build_base, build_catalog, open_folder, require_one_source
from sie_core.catalog.cards import read_card
from sie_core.catalog.configs.ids import ID_RULE, is_model_id
from sie_core.catalog.configs.reading import LARGEST_CONFIG, ConfigError, describe_problem, parse_config, read_config
from sie_core.catalog.configs.schema import Strict
from sie_core.catalog.configs.snapshot import Catalog, Problem, listed_id, profiles_of
from sie_core.catalog.configs.yaml_text import YamlFault, line_of, load_yaml
from sie_core.catalog.families import Candidate, ClaimFailed, FamilyChoice, ask_claim, choose_family, is_class_path
from sie_core.catalog.options.engine_options import ENGINE_OPTIONS
from sie_core.catalog.options.options import EffectiveOptions, check_profile, resolve_options
from sie_core.catalog.options.postprocess_options import config_name, is_on, parameters_of, profile_options
from sie_core.catalog.regular_file import UnfitFile, read_regular
from sie_core.catalog.sightings import Sighting, look, see
from sie_core.catalog.wording import did_you_mean, short

__all__ = [
    "ENGINE_OPTIONS",
    "ID_RULE",
    "LARGEST_CONFIG",
    "Candidate",
    "Catalog",
    "ClaimFailed",
    "ConfigError",
    "EffectiveOptions",
    "FamilyChoice",
    "Problem",
    "Sighting",
    "Strict",
    "UnfitFile",
    "YamlFault",
    "ask_claim",
    "build_base",
    "build_catalog",
    "check_profile",
    "choose_family",
    "config_name",
    "describe_problem",
    "did_you_mean",
    "is_class_path",
    "is_model_id",
    "is_on",
    "line_of",
    "listed_id",
    "load_yaml",
    "look",
    "open_folder",
    "parameters_of",
    "parse_config",
    "profile_options",
    "profiles_of",
    "read_card",
    "read_config",
    "read_regular",
    "require_one_source",
    "resolve_options",
    "see",
    "short",
]
