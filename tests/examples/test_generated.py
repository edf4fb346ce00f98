import importlib.util
from pathlib import Path

import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"


def generator():
    spec = importlib.util.spec_from_file_location("generate", EXAMPLES / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_manifest_is_current():
    assert (EXAMPLES / "nan" / "job.yaml").read_text() == generator().manifest()


def test_the_config_map_holds_the_files_to_the_byte():
    _, config_map = yaml.safe_load_all((EXAMPLES / "nan" / "job.yaml").read_text())
    for name, text in config_map["data"].items():
        assert text == (EXAMPLES / "nan" / name).read_text()


def test_the_manifest_fits_into_the_annotation_of_kubectl_apply():
    assert (EXAMPLES / "nan" / "job.yaml").stat().st_size < 250_000


def test_the_script_stays_readable():
    assert len((EXAMPLES / "nan" / "train.py").read_text().splitlines()) < 115
