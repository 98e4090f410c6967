"""A standby's file while the server is killed, follows another primary, or is promoted.

One index, one file.  WAL is a list of records, each of two entries of the index, of none, or a
checkpoint; a new primary's WAL shares what comes before the place where it forks off.  The header of
the file says up to which record it may have something (`begun`).  Replay begins again at the redo
pointer after each kill.

check.py runs it.  What is modelled: src/README, "Standbys", S2 to S4.  Not: what entries are of
(standby_build.py), and files of other primaries (t/start/promotion, t/standby/standby_setups).
"""
from typing import NamedTuple

RULES = {
    'begun': '`begun` is stored before the entries of a record',
    'skip': 'records that end before `begun` are skipped',
    'look': 'what the file has of the record that ends at `begun` is not inserted again',
    'published': 'a build that ends within a record says so in `begun`',
    'reached': 'a file is not used before replay has come to `begun`',
    'kept': 'nor kept if recovery ends before that',
    'timeline': 'nor if a timeline forks off before that',
    'checkpoints': 'nor if replay begins past the checkpoints that were replayed with the files',
    'anew': '... in the last run: one that begins earlier may build files there',
}


class System(NamedTuple):
    records: int = 4
    kills: int = 1
    forks: int = 1
    without: int = 0            # runs of the server without the library
    left_out: str = ''

    def keeps(self, rule):
        assert rule in RULES or not rule
        return self.left_out != rule


class State(NamedTuple):
    wal: tuple                  # ('+', '-' or 'c' or '.', timeline)
    pos: int                    # records replayed
    step: str                   # of the next one: '', read, half, done; over: promoted
    redo: int                   # replay begins there
    noted: int                  # the checkpoints of the control file
    # of the file
    status: str                 # none, delta, live
    entries: tuple              # with those that are there twice
    base: tuple                 # of a build: what the table had
    delta: tuple
    begun: int
    tli: int                    # of begun
    restored: bool
    # of replay
    reached: bool
    passed: int                 # what the server has come past, and its timeline
    passed_tli: int
    replay_tli: int
    kills: int
    forks: int
    without: int


PAIR = ('a', 'b')


def start(sys):
    return State((), 0, '', 0, 0, 'none', (), (), (), 0, 1, False, True, 0, 1, 1, 0, 0, 0)


def expected(state, upto):
    """What the index has at that place."""
    last = [kind for kind, _ in state.wal[:upto] if kind in '+-']
    return PAIR if last and last[-1] == '+' else ()


def after_op(entries, kind, entry, look):
    if kind == '-':
        return tuple(e for e in entries if e != entry)
    return entries if look and entry in entries else tuple(sorted(entries + (entry,)))


# ---- the primary ----

def writes(sys, state):
    if len(state.wal) >= sys.records or state.step == 'over':
        return
    tli = state.wal[-1][1] if state.wal else 1
    kind = '-' if expected(state, len(state.wal)) else '+'
    for one in (kind, '.', 'c'):
        yield state._replace(wal=state.wal + ((one, tli),))


# ---- replay ----

def lost(state):
    return state._replace(status='none', entries=(), base=(), delta=(), restored=False)


def note_timeline(sys, state, tli):
    inherits = state.replay_tli == state.passed_tli and \
        state.pos >= state.passed
    state = state._replace(replay_tli=tli)
    if tli == state.passed_tli or (state.pos + 1 <= state.passed and tli < state.passed_tli):
        return state
    state = state._replace(passed=state.pos, passed_tli=tli)
    if state.status == 'delta' or (not inherits and sys.keeps('timeline')):
        state = lost(state)
    return state if inherits else state._replace(reached=True)


def reading(sys, state):
    """The record is there: a checkpoint is noted before the server acts on it."""
    if state.step or state.pos == len(state.wal):
        return
    kind, tli = state.wal[state.pos]
    state = note_timeline(sys, state._replace(step='read'), tli)
    if state.restored and state.pos + 1 > state.begun:
        state = state._replace(reached=True)
    if kind == 'c' and sys.keeps('checkpoints'):
        state = state._replace(noted=state.pos)
    elif kind == 'c':
        state = state._replace(noted=99)
    yield state


def is_again(state):
    return state.restored and state.pos + 1 <= state.begun


def is_past(sys, state):
    return state.restored and state.pos + 1 < state.begun and sys.keeps('skip')


def apply(sys, state, entry):
    kind, _ = state.wal[state.pos]
    if kind not in '+-' or state.status == 'none' or is_past(sys, state):
        return state
    if state.status == 'delta':
        return state._replace(delta=state.delta + ((kind, entry),))
    look = state.restored and state.pos + 1 == state.begun and sys.keeps('look')
    return state._replace(entries=after_op(state.entries, kind, entry, look))


def note(sys, state):
    """What is said of the record in the file's header."""
    kind, tli = state.wal[state.pos]
    if kind not in '+-' or state.status != 'live' or is_again(state):
        return state
    return state._replace(begun=state.pos + 1, tli=tli)


def replaying(sys, state):
    if state.step == 'read':
        if sys.keeps('begun'):
            state = note(sys, state)
        yield apply(sys, state, PAIR[0])._replace(step='half')
    elif state.step == 'half':
        state = apply(sys, state, PAIR[1])
        yield (state if sys.keeps('begun') else note(sys, state))._replace(step='done')
    elif state.step == 'done':
        end = state.pos + 1
        if end > state.passed:
            state = state._replace(passed=end, passed_tli=state.wal[state.pos][1])
        yield state._replace(step='', pos=end)


def restartpoints(sys, state):
    for redo in range(state.redo + 1, state.pos):
        if state.wal[redo][0] == 'c' and not state.step:
            yield state._replace(redo=redo)


# ---- builds ----

def is_reached(sys, state):
    tli = state.wal[state.pos - 1][1] if state.pos else 1
    return state.reached or (state.pos >= state.begun and tli == state.tli)


def building(sys, state):
    if state.step in ('half', 'over'):
        return
    if state.status == 'none' and is_reached(sys, state):
        if state.step in ('', 'read'):
            yield state._replace(status='delta', base=expected(state, state.pos), delta=())
    elif state.status == 'delta':
        entries = state.base
        for kind, entry in state.delta:
            entries = after_op(entries, kind, entry, True)
        within = state.step != '' and sys.keeps('published')
        yield state._replace(status='live', entries=entries, base=(), delta=(), restored=False,
                             begun=state.pos + 1 if within else state.pos,
                             tli=state.wal[state.pos - 1][1] if state.pos else 1)


# ---- kills ----

def restarted(sys, state):
    """The server comes up, and replays from its redo pointer."""
    redo_tli = state.wal[state.redo][1] if state.redo < len(state.wal) else 1
    state = state._replace(pos=state.redo, step='')
    if state.status != 'live' or (state.redo > state.noted):
        state = lost(state)._replace(begun=0)
    if sys.keeps('anew'):
        state = state._replace(noted=state.redo)
    state = state._replace(restored=state.status == 'live', replay_tli=redo_tli,
                           passed=state.redo, passed_tli=redo_tli, reached=True)
    if state.restored and state.begun > state.redo:
        state = state._replace(passed=state.begun, passed_tli=state.tli, reached=False)
    return state


def kills(sys, state):
    if state.kills >= sys.kills or state.step == 'over':
        return
    state = state._replace(kills=state.kills + 1)
    yield restarted(sys, state)
    if state.without < sys.without:
        # it replays, and makes restartpoints, without the library
        for redo in range(state.redo, len(state.wal)):
            if state.wal[redo][0] == 'c':
                yield restarted(sys, state._replace(redo=redo, without=state.without + 1))
    if state.forks < sys.forks:
        # it comes back under a primary that has forked off where its tables have not been
        for fork in range(max(state.redo, 1) + 1, len(state.wal)):
            tli = state.wal[fork][1] + state.forks + 1
            yield restarted(sys, state._replace(wal=state.wal[:fork] + (('.', tli),), forks=state.forks + 1))


def forks(sys, state):
    """A new primary, that has all which this server has."""
    if state.forks < sys.forks and state.step == '' and 0 < state.pos < sys.records:
        tli = state.wal[state.pos - 1][1] + state.forks + 1
        yield state._replace(wal=state.wal[:state.pos] + (('.', tli),), forks=state.forks + 1)


def promotions(sys, state):
    if state.step != '':
        return
    if state.status == 'delta' or (state.restored and sys.keeps('kept') and not is_reached(sys, state)):
        state = lost(state)
    yield state._replace(step='over', reached=True)


MOVES = [(writes, 20), (reading, 20), (replaying, 60), (restartpoints, 5), (building, 15), (kills, 4),
         (forks, 2), (promotions, 1)]


# ---- what must hold ----

def violation(sys, state):
    if state.status != 'live' or state.step == 'half':
        return None, 0
    if state.restored and sys.keeps('reached') and not is_reached(sys, state):
        return None, 0
    done = state.step == 'done' or (state.step == 'read' and state.begun == state.pos + 1)
    place = state.pos + 1 if done and state.entries != expected(state, state.pos) else state.pos
    wanted = expected(state, place)
    if state.entries != wanted:
        return 'the file has %s at %d, where it should have %s: %s' % (state.entries, place, wanted, state), 1
    return None, 1


# ---- what is run ----

SMALL = {
    'one kill': System(records=4, kills=1, forks=0),
    'a kill and a fork': System(records=4, kills=1, forks=1),
    'two kills': System(records=3, kills=2, forks=0, without=1),
}
LARGE = [
    System(records=12, kills=6, forks=3),
    System(records=12, kills=6, forks=2, without=2),
]
LIMIT = 2000000
STEPS = 300
