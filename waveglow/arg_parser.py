"""Flags of WaveGlow, from its configs."""

from __future__ import annotations

import argparse

from common.options import add_fields
from common.parser import Parser
from waveglow.config import WaveGlowConfig, WaveGlowMemoryConfig, WNConfig
from waveglow.data_function import WaveGlowDataConfig
from waveglow.loss_function import LossConfig


def add_waveglow_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model's flags: the flow, then the network inside each of its couplings."""
    add_fields(parser.add_argument_group("WaveGlow: flow"), WaveGlowConfig)
    add_fields(parser.add_argument_group("WaveGlow: network of a coupling (WN)"), WNConfig)


def add_waveglow_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for training only."""
    group = parser.add_argument_group("WaveGlow: data and loss")
    add_fields(group, WaveGlowDataConfig)
    add_fields(group, LossConfig)
    add_fields(parser.add_argument_group("WaveGlow: memory"), WaveGlowMemoryConfig)


def parse_waveglow_args(parent: argparse.ArgumentParser, add_help: bool = False) -> argparse.ArgumentParser:
    """A parser with the flags of `parent` and the model's, as scripts written for the published recipe build it."""
    parser = Parser(parents=[parent], add_help=add_help, conflict_handler="resolve")
    add_waveglow_arguments(parser)
    return parser
