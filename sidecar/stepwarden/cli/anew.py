"""How often a run was started anew, and whether it may be once more: pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from stepwarden.policy import Decision, Rule
from stepwarden.restarts import Restarts, after_crash, crashes, refusal
from stepwarden.wire import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Anew:
    """The bounds, and for each restart the place of its rule and its reason."""

    bounds: Restarts = field(default_factory=Restarts)
    done: tuple[tuple[int, str], ...] = ()

    def refusal(self, rules: Sequence[Rule], decision: Decision) -> str:
        """Say why the run is not started anew; nothing where it is."""
        place = rules.index(decision.rule)
        return refusal(self.bounds, decision, len(self.done), sum(rule == place for rule, _ in self.done))

    def rules(self, rules: Sequence[Rule]) -> tuple[Rule, ...]:
        """Return the rules as they hold now: one whose restarts are used up stops the run."""
        return tuple(spent(rule) if self.refusal(rules, unasked(rule)) else rule for rule in rules)

    def more(self, rules: Sequence[Rule], decision: Decision) -> "Anew":
        """Count one more."""
        one = (rules.index(decision.rule), decision.findings[0].kind)
        return replace(self, done=(*self.done, one))

    @property
    def wait(self) -> float:
        """The seconds before the next one."""
        return self.bounds.wait(len(self.done))


def unasked(rule: Rule) -> Decision:
    """Return a decision of no finding, to ask what the rule may still do."""
    return Decision(action=rule.action, rule=rule, findings=())


def spent(rule: Rule) -> Rule:
    """Return what a rule does once it may not restart any more."""
    action, then = ("Fail" if each == "Restart" else each for each in (rule.action, rule.then))
    return replace(rule, action=action or rule.action, then=then)


def crashed(rules: Sequence[Rule], findings: Iterable[Finding], code: int) -> Decision | None:
    """Return the restart that a failed run asks for; what no agent lived to tell of is told here."""
    known = crashes(findings)
    message = f"the run ended with exit code {code}"
    unknown = Finding(
        kind="RankFailed", severity="critical", step=0, message=message, evidence={"exit_code": code}
    )
    return after_crash(rules, known or [unknown])
