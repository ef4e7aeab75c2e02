"""The checks of every adapter, run on a loaded model. They see it through its contract only: they serve any family."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sie_kit.checks.adapter.lifetime import (
    it_unloads_and_loads_again,
    nothing_is_left_after_unload,
    nothing_is_printed,
    precision_and_memory_are_told_truly,
    ten_loads_take_no_more_than_one,
    two_models_of_a_family_do_not_meet,
)
from sie_kit.checks.adapter.limits import (
    a_cut_text_is_the_text_that_was_kept,
    long_texts_are_cut_and_say_so,
    odd_texts_are_answered,
    the_limit_itself_is_not_cut,
    tokens_are_those_of_tokenize,
)
from sie_kit.checks.adapter.outputs import (
    a_lora_adapter_changes_its_own_rows_alone,
    a_row_of_a_batch_is_the_batch_of_one,
    facts_are_truthful,
    outputs_are_what_was_asked,
    the_same_input_gives_the_same_output,
)
from sie_kit.checks.adapter.requests import (
    a_score_is_of_its_query,
    labels_of_a_request_are_its_own,
    only_run_options_keep_requests_apart,
    options_of_a_request_are_its_own,
    refusals_are_typed,
    what_is_passed_over_is_a_field,
)
from sie_kit.checks.adapter.served import the_engine_serves_it
from sie_kit.checks.adapter.units import (
    every_item_gives_units,
    finish_may_run_on_several_threads,
    items_are_told_apart_by_what_they_hold,
    many_units_run_together,
    prepare_may_run_on_several_threads,
    texts_of_equal_options_share_a_key,
    the_same_units_run_twice,
    what_it_is_given_stays_as_it_is,
)
from sie_kit.loading import Items, LoadedModel

ADAPTER_CHECKS: Sequence[Callable[[LoadedModel, Items], None]] = (
    facts_are_truthful,
    precision_and_memory_are_told_truly,
    every_item_gives_units,
    outputs_are_what_was_asked,
    a_row_of_a_batch_is_the_batch_of_one,
    a_lora_adapter_changes_its_own_rows_alone,
    the_same_input_gives_the_same_output,
    the_same_units_run_twice,
    many_units_run_together,
    prepare_may_run_on_several_threads,
    finish_may_run_on_several_threads,
    items_are_told_apart_by_what_they_hold,
    what_it_is_given_stays_as_it_is,
    texts_of_equal_options_share_a_key,
    only_run_options_keep_requests_apart,
    options_of_a_request_are_its_own,
    labels_of_a_request_are_its_own,
    a_score_is_of_its_query,
    what_is_passed_over_is_a_field,
    refusals_are_typed,
    odd_texts_are_answered,
    long_texts_are_cut_and_say_so,
    the_limit_itself_is_not_cut,
    a_cut_text_is_the_text_that_was_kept,
    tokens_are_those_of_tokenize,
    two_models_of_a_family_do_not_meet,
    the_engine_serves_it,
    nothing_is_printed,
    nothing_is_left_after_unload,
    ten_loads_take_no_more_than_one,
    it_unloads_and_loads_again,
)
"""In the order in which they run: the last ones load the model again."""
