"""Runs the models: every state of small systems, random walks through larger ones, and each
rule left out, which must be found.

    python3 check.py [MODEL...]     MODEL: standby_build online_rebuild standby_restart
    python3 check.py --walks=20000 standby_build

Prints a line "NAME: N passed, M failed" for each model; the exit status is 0 if nothing failed.
"""
import importlib
import random
import sys
import time


def explore(model, system, limit):
    """All states that can be reached, breadth first: (what is wrong or None, states, look-ups)."""
    first = model.start(system)
    known = {first}
    level = [first]
    checked = 0
    while level:
        following = []
        for state in level:
            for kind, _ in model.MOVES:
                for after in kind(system, state):
                    if after in known:
                        continue
                    known.add(after)
                    wrong, n = model.violation(system, after)
                    checked += n
                    if wrong is not None:
                        return wrong, len(known), checked
                    following.append(after)
        if len(known) > limit:
            raise RuntimeError('%s has more than %d states' % (system, limit))
        level = following
    return None, len(known), checked


def walk(model, system, seed, steps):
    """One random walk: (what is wrong or None, look-ups)."""
    chance = random.Random(seed)
    kinds = [k for k, _ in model.MOVES]
    weights = [w for _, w in model.MOVES]
    state = model.start(system)
    checked = 0
    for _ in range(steps):
        moves = list(chance.choices(kinds, weights)[0](system, state))
        if not moves:
            continue
        state = chance.choice(moves)
        wrong, n = model.violation(system, state)
        checked += n
        if wrong is not None:
            return wrong, checked
    return None, checked


class Results:
    def __init__(self, name):
        self.name, self.passed, self.failed = name, 0, 0

    def note(self, good, text):
        if good:
            self.passed += 1
        else:
            self.failed += 1
        print('%s %s: %s' % ('ok' if good else 'not ok', self.name, text), flush=True)


def check_enumeration(results, model):
    for name, system in model.SMALL.items():
        begun = time.process_time()
        wrong, states, checked = explore(model, system, model.LIMIT)
        results.note(wrong is None, '%s: %d states, %d look-ups, %.1f s%s' % (
            name, states, checked, time.process_time() - begun, '' if wrong is None else ': ' + wrong))


def check_walks(results, model, walks):
    begun = time.process_time()
    total = 0
    wrong = None
    for seed in range(walks):
        system = model.LARGE[seed % len(model.LARGE)]
        wrong, checked = walk(model, system, seed, model.STEPS)
        total += checked
        if wrong is not None:
            wrong = 'walk %d: %s' % (seed, wrong)
            break
    results.note(wrong is None, '%d walks of %d steps, %d look-ups, %.1f s%s' % (
        walks, model.STEPS, total, time.process_time() - begun, '' if wrong is None else ': ' + wrong))


def finds(model, rule, walks):
    """How a rule's absence shows, or None."""
    for seed in range(walks):
        system = model.LARGE[seed % len(model.LARGE)]._replace(left_out=rule)
        wrong, _ = walk(model, system, seed, model.STEPS)
        if wrong is not None:
            return 'walk %d: %s' % (seed, wrong)
    for name, system in model.SMALL.items():
        wrong, states, _ = explore(model, system._replace(left_out=rule), 10 * model.LIMIT)
        if wrong is not None:
            return '%s, %d states: %s' % (name, states, wrong)
    return None


def check_rules(results, model, walks):
    for rule, purpose in model.RULES.items():
        how = finds(model, rule, walks)
        results.note(how is not None, 'without "%s" (%s): %s' % (
            rule, purpose, how or 'nothing is wrong'))


def main(arguments):
    walks = 600
    names = []
    for argument in arguments:
        if argument.startswith('--walks='):
            walks = int(argument.partition('=')[2])
        else:
            names.append(argument)
    failed = 0
    for name in names or ['standby_build', 'online_rebuild', 'standby_restart']:
        model = importlib.import_module(name)
        results = Results('model_' + name)
        check_enumeration(results, model)
        check_walks(results, model, walks)
        check_rules(results, model, walks)
        print('%s: %d passed, %d failed' % (results.name, results.passed, results.failed))
        failed += results.failed
    return failed != 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
