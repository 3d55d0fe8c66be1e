"""The only reader of .env and the environment. Frozen models with meanings, units, ranges and reasons."""

from sparktui.settings.example import example_text
from sparktui.settings.load import default_env_path, load_settings, parse_settings
from sparktui.settings.model import SECRET_NAMES, SETTINGS, SettingRow, Settings, setting_rows
from sparktui.settings.problems import SettingsRefused, problem_lines

__all__ = [
    "SECRET_NAMES",
    "SETTINGS",
    "SettingRow",
    "Settings",
    "SettingsRefused",
    "default_env_path",
    "example_text",
    "load_settings",
    "parse_settings",
    "problem_lines",
    "setting_rows",
]
