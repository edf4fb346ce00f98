"""The line of an operator in loss code, by its source: only where there is no doubt."""

import pytest

from stepwarden.agent.replay import losscode

ABOVE = """
for step in range(3):
    out = model(x)  # log(
    loss = -torch.log(out).mean()
    loss.backward()
"""
IN_A_FUNCTION = """
class Model(nn.Module):
    def forward(self, x):
        return x.log()

def loss_of(p):
    return -p.log().mean()

for step in range(3):
    loss = loss_of(model(x))
    loss.backward()
"""
TWICE = """
a = torch.log(x)
b = torch.log(y)
(a + b).backward()
"""
DIVISION = """
path = "a/b"  # a/b
loss = total / count
loss.backward()
"""


@pytest.mark.parametrize(
    ("source", "op", "called", "line"),
    [
        pytest.param(ABOVE, "log", 5, 4, id="just above"),
        pytest.param(IN_A_FUNCTION, "log", 11, 7, id="in a function, not in a module"),
        pytest.param(TWICE, "log", 4, None, id="twice"),
        pytest.param(DIVISION, "div", 4, 3, id="a division, not a path or a comment"),
        pytest.param(ABOVE, "sqrt", 5, None, id="nowhere"),
        pytest.param("def broken(:\n", "log", 1, None, id="no Python"),
        pytest.param("", "log", 7, None, id="no source"),
    ],
)
def test_lines(tmp_path, source, op, called, line):
    (tmp_path / "train.py").write_text(source)
    assert losscode.located(op, str(tmp_path / "train.py"), called) == line
