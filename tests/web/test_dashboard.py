#!/usr/bin/env python3
"""The dashboard in Chromium, against a real server and two workers: sign in, submit a grid, watch it run on both
workers, compare, cancel, retry, pause; the server is killed and comes back; a reader sees no buttons; both
languages, phone width. `test_dashboard.py BRIM`: run in an empty folder. Skips (77) without a browser."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402

BRIM = sys.argv[1]
HERE = os.path.join(os.getcwd(), "dashboard")
HEAD = """backend: ref
device: cpu
threads: 1
dataset: synthetic(shape=(6,), classes=3, samples=96)
model: mlp(depth=1, hidden=8)
data: {num_workers: 0}
batch_size: 8
"""
LONG = "name: long\nepochs: 4000000\ntags: [slow]\nlr: [0.1, 0.01]\n" + HEAD
SHORT = "name: short <b>&amp;\nepochs: 3\ntags: [\"<i>x</i>\"]\nlr: [0.1, 0.01]\nseed: [0, 1]\n" + HEAD
PRIVATE = {"BRIM_TOKEN", "BRIM_CA", "BRIM_PIN", "BRIM_INSECURE", "LANG", "LC_ALL", "BRIM_LANG"}


def check(what, good):
    if not good:
        raise browser.Failure(what)


class NoServer(Exception):
    pass


#---------------------------------- the pool ----------------------------------

def free_port():
    """A port below those that the kernel gives to connections. A client that keeps trying while the server is away
    could otherwise be given the server's own port."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Pool:
    def __init__(self, tokens=True):
        self.env = {k: v for k, v in os.environ.items() if k not in PRIVATE}
        self.port = free_port()
        self.server = None
        self.workers = []
        if not tokens:
            self.serve()
            return
        self.tokens = {name: self.run("serve", "token", "add", name, "--role", role, "--store", "pool").strip()
                       for name, role in (("boss", "admin"), ("eye", "read"), ("lab", "worker"))}
        with open("lab.token", "w") as out:
            out.write(self.tokens["lab"])
        self.serve()
        self.workers = [self.start("worker", "--url", self.url, "--token-file", "lab.token", "--output-dir", name,
                                   "--device", "cpu", "--jobs", "1") for name in ("w1", "w2")]

    def run(self, *words):
        return subprocess.run([BRIM, *words], env=self.env, check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True).stdout

    def start(self, *words, **how):
        log = open("%s-%d.log" % (words[0], len(self.workers)), "ab")
        return subprocess.Popen([BRIM, *words], env=self.env, stdin=subprocess.DEVNULL, stderr=log,
                                stdout=how.get("stdout", log), text=how.get("text"))

    def serve(self):
        self.server = self.start("serve", "--server-only", "--store", "pool", "--output-dir", "pool", "--json", "--port",
                                 str(self.port), stdout=subprocess.PIPE, text=True)
        line = self.server.stdout.readline()
        if not line:
            with open("serve-0.log") as log:
                raise NoServer(log.read())
        self.port = json.loads(line)["port"]
        self.url = "http://127.0.0.1:%d" % self.port

    def kill_server(self):
        self.server.kill()
        self.server.wait()
        self.server.stdout.close()

    def close(self):
        for process in [*self.workers, self.server]:
            process.send_signal(signal.SIGTERM)
        for process in [*self.workers, self.server]:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


#---------------------------------- the page ----------------------------------

ROWS = "[...brim.model.exps.values()]"


def count(page, state):
    return page.run(ROWS + ".filter(r => r.state === %s).length" % json.dumps(state))


def until_count(page, state, n):
    page.until(ROWS + ".filter(r => r.state === %s).length === %d" % (json.dumps(state), n))


def sign_in(page, token):
    page.until("!!document.querySelector('#token')")
    page.type("#token", "brim_wrong")
    page.key("Enter")
    page.until("document.querySelector('.login .bad').textContent.length > 0")
    page.run("document.querySelector('#token').value = ''")
    page.type("#token", token)
    page.key("Enter")
    page.until("!!document.querySelector('.view.list') && brim.model.live && brim.model.complete")


def press(page, *keys):
    page.run("document.activeElement && document.activeElement.blur()")
    for key in keys:
        page.key(key)


def go(page, letter, view):
    press(page, "g", letter)
    page.until("!!document.querySelector('.view.%s')" % view)


def confirm(page):
    page.click("dialog[open] button.main")
    page.until("!document.querySelector('dialog')")


def submit(page, text, points):
    go(page, "s", "submit")
    page.run("document.querySelector('#grid-yaml').select()")
    page.type("#grid-yaml", text)
    page.click_text("button.main", "Check")
    page.until("document.querySelector('.points h2') && document.querySelector('.points h2').textContent.startsWith('%d')" % points)
    check("no points are listed", page.run("document.querySelectorAll('.points details').length") == points)
    page.click("#grid-submit")
    page.until("!!document.querySelector('.view.list')")


def show(page, state):
    """Only these experiments in the list, none selected."""
    page.run("location.hash = '#/exps?state=%s'" % state)
    page.until("!!document.querySelector('.view.list')")
    press(page, "Escape")
    n = count(page, state)
    page.until("document.querySelectorAll('.list tbody tr[data-id]').length === %d" % n)


def select_all(page):
    press(page, "a")
    page.until("document.querySelectorAll('.list tbody tr.selected').length > 0")


#---------------------------------- what is tested ----------------------------------

def test_submit(page):
    go(page, "s", "submit")
    page.click("#grid-example")  # an example that the server takes
    page.until("document.querySelector('#grid-yaml').value.length > 0")
    page.click_text("button.main", "Check")
    page.until("!!document.querySelector('.points details')")
    page.run("document.querySelector('#grid-yaml').select()")
    page.type("#grid-yaml", "lr: [0.1\nmodel: mlp")
    page.click_text("button.main", "Check")
    page.until("!!document.querySelector('.points .bad')")
    check("the place of the mistake", "line" in page.run("document.querySelector('.points .bad').textContent"))
    check("it can be submitted", page.run("document.querySelector('#grid-submit').hidden"))
    submit(page, LONG, 2)


def test_watch(page):
    until_count(page, "running", 2)
    page.until("new Set(%s.filter(r => r.state === 'running').map(r => r.worker)).size === 2" % ROWS)
    # values arrive without a reload, and the chart draws them
    page.run("window.row = document.querySelector('.list tbody tr[data-id]')")
    page.run("window.before = %s.map(r => r.step)" % ROWS)
    page.until(ROWS + ".every((r, i) => r.step > window.before[i])")
    # a row stays the same element, so that a click on it is not lost
    page.run("document.querySelector('main').view.update()")
    check("the row was made anew", page.run("window.row.isConnected"))
    page.until("brim.model.hasMetrics")
    page.until("!!document.querySelector('.side .uplot canvas')")
    page.run("window.drawn = document.querySelector('.side .chart').chart.plot.data[0].length")
    page.until("document.querySelector('.side .chart').chart.plot.data[0].length > window.drawn")
    page.until("document.querySelectorAll('.side .legend li').length === 2")
    go(page, "w", "workers")
    page.until("document.querySelectorAll('.worker').length === 2")
    page.until("document.querySelectorAll('.worker .running li').length === 2")
    page.until("document.querySelectorAll('.worker .meter').length >= 4")  # their machines' load


def test_drawn(page):
    """One of two selected experiments waits: one curve is drawn, and the chart reports it."""
    page.run("location.hash = '#/exps'")
    page.until("document.querySelectorAll('.list tbody tr[data-id]').length === 6")
    for state in ("running", "queued"):
        one = page.run(ROWS + ".find(r => r.state === '%s').id" % state)
        page.run("document.querySelector(\"tr[data-id='%s'] input\").focus()" % one)
        page.click("tr[data-id='%s'] input" % one)
        check("the keyboard left the checkbox", page.run("document.activeElement.closest('tr').dataset.id === '%s'" % one))
    page.until("document.querySelector('.actions b').textContent.startsWith('2')")
    page.until("document.querySelectorAll('.side .legend li').length === 1")
    page.until("/\\b1\\b/.test(document.querySelector('.drawn').textContent)")
    page.until("/@[\\d,]+/.test(document.querySelector('tr[data-id] .c-best').textContent)")  # the step of the best value
    page.until("document.querySelector('.list th.c-result').textContent === 'val acc, last'")  # as in a terminal
    press(page, "Escape")


def test_queue(page):
    submit(page, SHORT, 4)
    until_count(page, "queued", 4)
    go(page, "q", "queue")
    page.until("document.querySelectorAll('.queue tbody tr[data-id]').length === 4")
    page.until("[...document.querySelectorAll('.queue td.c-waits')].every(e => e.textContent)")
    test_drawn(page)
    go(page, "q", "queue")
    page.click(".queue [data-action=pause]")
    until_count(page, "paused", 1)
    page.click(".queue [data-action=run]")
    until_count(page, "queued", 4)
    check("a text of the server became an element", page.run("document.querySelectorAll('main b b, main i i, td i i').length === 0"))


def test_phone(drive, pool):
    """A finger can reach the actions on the queue."""
    page = drive.page(pool.url + "/#/queue", 390, 844)
    page.until("!!document.querySelector('#token')")
    page.type("#token", pool.tokens["boss"])
    page.key("Enter")
    page.until("document.querySelectorAll('.queue tbody .menu').length === 4")
    size = page.run("(({width, height, right}) => [width, height, right])(document.querySelector('.queue .menu').getBoundingClientRect())")
    check("the button is %s" % size, size[0] >= 32 and size[1] >= 32 and size[2] <= 390)
    for action, state, n in (("pause", "paused", 1), ("run", "queued", 4)):
        one = page.run(ROWS + ".find(r => r.state === %s).id" % json.dumps("queued" if action == "pause" else "paused"))
        page.click("tr[data-id='%s'] .menu" % one)
        page.until("document.querySelectorAll('dialog [data-action]').length >= 3")
        page.click("dialog [data-action=%s]" % action)
        page.until("!document.querySelector('dialog')")
        until_count(page, state, n)
    page.close()


def test_left(page):
    """Workers that left long ago share one line."""
    go(page, "w", "workers")
    page.run("""for (const [id, ago] of [['old1', 3700000], ['old2', 9e9], ['silent', 600000]])
      brim.model.workers.set(id, { id, history: [], last_seen: brim.now() - ago }); brim.emit('workers')""")
    page.until("document.querySelector('details.left summary').textContent === '2 workers left'")
    check("they are open", not page.run("document.querySelector('details.left').open"))
    check("a silent one is a card", page.run("!!document.querySelector('.worker[data-worker=silent]')"))
    page.click("details.left summary")
    page.run("document.querySelector('main').view.draw()")
    check("they close", page.run("document.querySelector('details.left').open"))
    names = page.run("[...document.querySelectorAll('details.left li')].map(e => e.dataset.worker).join()")
    check("those that left: %s" % names, names == "old1,old2")
    page.run("for (const id of ['old1', 'old2', 'silent']) brim.model.workers.delete(id)")


def test_best_again(page):
    """A best value that could not be read is read when the page needs it again."""
    row = ROWS + ".find(r => r.state === 'done')"
    best = "(brim.model.best(%s) || {}).value" % row
    page.until(best + " !== undefined")
    page.run("""window.plain = window.fetch; window.cut = 0;
      window.fetch = (path, how) => String(path).includes('/v1/bests') && !window.cut++ ? Promise.reject(new TypeError('away')) : plain(path, how);
      %s.metric = -1; brim.model.load()""" % row)
    page.until("%s !== undefined && window.cut > 1" % best)  # asks each time, as drawing does
    page.run("window.fetch = window.plain")


def test_tidy(page):
    """Values that an earlier attempt left in the store are not shown for the next one."""
    row = page.run("brim.model.tidy({state: 'running', reason: 'why', failure: 'crash', step: 7})")
    check("a note stays: %s" % row, not row["reason"] and not row["failure"] and row["step"] == 7)
    row = page.run("brim.model.tidy({state: 'queued', reason: 'why', step: 7, epoch: 1, ckpt_step: -1})")
    check("progress without a checkpoint: %s" % row, row["step"] == -1 and row["epoch"] == -1 and row["reason"] == "why")
    row = page.run("brim.model.tidy({state: 'queued', step: 7, epoch: 1, ckpt_step: 5})")
    check("the checkpoint: %s" % row, row["step"] == 5)


def test_cancel(page):
    show(page, "running")
    select_all(page)
    page.click(".actions [data-action=cancel]")
    confirm(page)
    until_count(page, "cancelled", 2)
    until_count(page, "done", 4)


def test_compare(page):
    show(page, "done")
    select_all(page)
    press(page, "c")
    page.until("document.querySelectorAll('table.compare thead a').length === 4")
    keys = page.run("[...document.querySelectorAll('table.compare tr.differs th')].map(e => e.textContent)")
    check("the differences are %s" % keys, sorted(keys) == ["seed", "training.learning_rate"])
    page.until("document.querySelectorAll('.compare .best').length >= 2")  # of the last values, and of the best ones
    rows = page.run("[...document.querySelectorAll('table.compare tr.result th')].map(e => e.textContent)")
    check("the results are %s" % rows, rows == ["val acc, last", "val acc, best"])
    # the best value is the curve's
    good = page.run("""Promise.all(brim.model.grids.length ? document.querySelector('main').view.rows.map(async (r) => {
      const points = (await brim.get('/v1/exps/' + r.id + '/curve?key=' + r.metric_key)).buckets, best = brim.model.best(r);
      const most = Math.max(...points.map(p => p[5]));
      return best.value === most && best.step === points.find(p => p[5] === most)[0];
    }) : []).then(all => all.length === 4 && all.every(x => x))""")
    check("a best value is wrong", good)
    page.until("document.querySelectorAll('.chartgrid .uplot canvas').length >= 2")
    press(page, "Escape")
    page.until("!!document.querySelector('.view.list')")
    press(page, "Escape")


def test_groups(page):
    grid = page.run("brim.model.grids.find(g => g.name.startsWith('short')).id")
    page.run("location.hash = '#/exps?groups=1&grid=%s'" % grid)
    page.until("document.querySelectorAll('.list tbody tr .range').length === 2")
    texts = page.run("[...document.querySelectorAll('.list tbody td.c-mean')].map(e => e.textContent)")
    check("no deviation: %s" % texts, all("\u00b1" in text for text in texts))
    counts = "[...document.querySelectorAll('.list tbody td.c-runs')].map(e => e.textContent).join()"
    check("the runs", page.run(counts) == "n 2 of 2,n 2 of 2")
    # all grids together, with the best value of each run
    page.run("location.hash = '#/exps?groups=1'")
    page.until("document.querySelectorAll('.list tbody tr[data-id]').length === 4")
    check("the grids are not named", page.run("document.querySelector('.shown').textContent.startsWith('all grids')"))
    check("the values are not the best", page.run("""brim.get('/v1/groups').then(r => r.take === 'best' && r.groups.every(g => g.measured < 2 ||
      Math.abs(g.mean - g.exps.reduce((a, id) => a + brim.model.best(brim.model.exps.get(id)).value, 0) / g.measured) < 1e-9))"""))
    # the chart's group figures equal those of the table
    page.until("""(() => { const v = document.querySelector('main').view, shown = [...document.querySelectorAll('.side .legend li b')].map(e => e.textContent);
      return shown.length > 0 && shown.every((text, i) => text === brim.metric(v.groupsKey, v.panel.chart.shown()[i].mean)); })()""")
    # filters apply to groups too
    page.run("document.querySelector('main').view.set({ q: 'lr=0.1' })")
    page.until("document.querySelectorAll('.list tbody tr[data-id]').length === 2")
    page.run("document.querySelector('main').view.set({ q: '' })")
    # cancelled experiments are in no mean
    grid = page.run("brim.model.grids.find(g => g.name === 'long').id")
    page.run("location.hash = '#/exps?groups=1&grid=%s'" % grid)
    page.until(counts + " === 'n 0 of 1,n 0 of 1'")
    check("a mean of nothing", page.run("[...document.querySelectorAll('.list tbody td.c-mean')].every(e => e.textContent === brim.dash)"))


def test_filters(page):
    page.run("location.hash = '#/exps'")
    page.until("document.querySelectorAll('.list tbody tr[data-id]').length === 6")
    press(page, "/")
    check("'/' does not search", page.run("document.activeElement.type === 'search'"))
    page.call("Input.insertText", text="lr=0.01 seed=1")
    page.until("document.querySelectorAll('.list tbody tr[data-id]').length === 1")
    check("the address", page.run("location.hash.includes('lr%3D0.01')"))
    page.run("document.querySelector('.filters input').value = ''; document.querySelector('.filters input').dispatchEvent(new Event('input'))")
    page.until("document.querySelectorAll('.list tbody tr[data-id]').length === 6")
    # a count is an integer
    hits = page.run("['lr=0.01 seed=1', 'lr=0.0', 'lr=0.'].map(q => { const v = document.querySelector('main').view; v.set({ q }); return v.rows.length; }).join()")
    check("a search finds %s" % hits, hits == "1,0,6")
    page.run("document.querySelector('main').view.set({ q: '' })")
    page.until("document.querySelectorAll('.list tbody tr[data-id]').length === 6")
    check("a heading is cut off", page.run("[...document.querySelectorAll('th.c-result, th.c-best')].every(e => e.scrollWidth <= e.clientWidth)"))
    # the chart shows the first rows of the table that have started
    for sort in ("", "label", "-label"):
        page.run("document.querySelector('main').view.set({ sort: '%s' })" % sort)
        page.until("""(() => { const v = document.querySelector('main').view, begun = v.rows.filter(r => r.step > 0 || r.state === 'done').slice(0, 8);
          return v.panel.chart.list.map(e => e.id).join() === begun.map(r => r.id).join(); })()""")
    page.run("document.querySelector('main').view.set({ sort: '' })")
    # actions leave out rows that a filter hides
    press(page, "a")
    page.until("document.querySelector('.actions b').textContent.startsWith('6')")
    page.run("document.querySelector('main').view.set({ q: 'seed=1' })")
    page.until("document.querySelector('.actions b').textContent.startsWith('2')")
    check("hidden ones are not named", page.run("document.querySelector('.actions').textContent.includes('4 more')"))
    check("hidden ones are compared", page.run("document.querySelector('main').view.chosen().length") == 2)
    page.run("document.querySelector('main').view.set({ q: '' })")
    press(page, "Escape")
    page.run("const s = document.querySelector('select.tag'); s.value = '<i>x</i>'; s.dispatchEvent(new Event('change'))")
    page.until("document.querySelectorAll('.list tbody tr[data-id]').length === 4")


def test_addresses(page):
    """An address that names nothing shows a page with that message."""
    for place in ("exp/%ff", "exp/zzz", "exp/00", "exp/", "nothing", "constructor"):
        page.run("location.hash = '#/exps'")
        page.run("location.hash = '#/%s'" % place)
        page.until("document.querySelector('main').textContent.length > 5 && !document.querySelector('.view > p.dim:only-child')")
    ids = page.run("brim.model.exps.values().next().value.id.slice(0, 12)")
    page.run("location.hash = '#/compare?ids=%s,%s&of=10000'" % (ids, ids[:11]))
    page.until("document.querySelector('.of') && document.querySelector('.of').textContent.includes('10,000')")


def test_one(page):
    """An experiment by keys; it is retried and cancelled."""
    show(page, "cancelled")
    press(page, "j", "Enter")
    page.until("!!document.querySelector('.onehead [data-action=retry]')")
    check("config", page.run("document.querySelector('table.config').textContent.includes('4000000')"))
    page.click(".onehead [data-action=retry]")
    page.until("document.querySelector('.onehead .state').classList.contains('s-running')")
    page.until("!!document.querySelector('.one .uplot canvas')")
    page.until("document.querySelectorAll('.one table.plain tbody tr').length === 2")  # two attempts
    page.until("document.querySelector('pre.log').textContent.includes('epoch=')")
    page.run("window.before = document.querySelector('pre.log').textContent.length")
    page.until("document.querySelector('pre.log').textContent.length > window.before")
    # facts move with the curve
    step = "[...document.querySelectorAll('.one dl.facts dt')].find(e => e.textContent === 'step').nextSibling.textContent"
    page.run("window.before = " + step)
    page.until(step + " !== window.before")
    # the log of the previous attempt
    log = "document.querySelector('main').view.log"
    check("the attempt", page.run(log + ".attempt") == 2)
    page.click("[data-attempt='1']")
    page.until(log + ".attempt === 1 && document.querySelector('pre.log').textContent.includes('epoch=')")
    check("the choice", page.run("document.querySelector('select.which').value") == "1")
    page.click("[data-attempt='2']")
    page.until(log + ".attempt === 2 && document.querySelector('pre.log').textContent.includes('epoch=')")


def test_end(page, pool):
    """The server dies while an experiment runs. Sessions end with it: the page asks for the token again."""
    pool.kill_server()
    page.until("!document.querySelector('.away').hidden")
    pool.serve()
    page.until("!!document.querySelector('#token')")
    page.type("#token", pool.tokens["boss"])
    page.key("Enter")
    page.until("!!document.querySelector('.view.one') && brim.model.live && document.querySelector('.away').hidden")
    until_count(page, "running", 1)
    page.run("window.before = %s.find(r => r.state === 'running').step" % ROWS)
    page.until(ROWS + ".find(r => r.state === 'running').step > window.before")
    page.click(".onehead [data-action=cancel]")
    confirm(page)
    until_count(page, "cancelled", 2)


def test_away(drive):
    """A server without tokens dies and comes back: the page continues after the last event it has seen."""
    os.makedirs("other")
    os.chdir("other")
    pool = Pool(tokens=False)
    try:
        page = drive.page(pool.url + "/")
        page.until("!!document.querySelector('.view.list') && brim.model.live && brim.model.complete")
        submit(page, LONG, 2)
        until_count(page, "queued", 2)
        pool.kill_server()
        page.until("!document.querySelector('.away').hidden")
        pool.serve()
        second = drive.page(pool.url + "/")
        second.until("!!document.querySelector('.view.list') && brim.model.live && brim.model.complete")
        submit(second, SHORT, 4)
        page.until("document.querySelector('.away').hidden && brim.model.live")
        until_count(page, "queued", 6)
        page.close()
        second.close()
    finally:
        pool.close()
        os.chdir("..")


def test_reader(drive, pool):
    page = drive.page(pool.url + "/#/exps?state=cancelled", 390, 844, True, "ko-KR")
    sign_in(page, pool.tokens["eye"])
    check("Korean", page.run("document.documentElement.lang === 'ko' && document.querySelector('nav a').textContent === '실험'"))
    check("dark", page.run("document.documentElement.dataset.theme === 'dark'"))
    check("a reader may submit", page.run("!document.querySelector('nav a[href=\"#/submit\"]')"))
    for place in ("exps", "queue", "workers", "exps?groups=1", "exp/" + page.run("[...brim.model.exps.keys()][0]"),
                  "compare?ids=" + page.run("[...brim.model.exps.keys()].slice(0, 3).join()")):
        page.run("location.hash = '#/%s'" % place)
        page.until("!!document.querySelector('.view')")
        page.until("!document.querySelector('.view > p.dim:only-child')")  # loading
        if "groups" in place:
            page.until("document.querySelectorAll('.list td.c-mean').length > 0")
            check("a group has no name", page.run("document.querySelector('.list td.c-label').clientWidth > 100"))
        check("%s is wider than a phone" % place, page.run("document.documentElement.scrollWidth <= innerWidth"))
        check("%s has buttons for actions" % place, page.run("document.querySelectorAll('[data-action]').length === 0"))
    press(page, "l")
    page.until("document.documentElement.lang === 'en' && document.querySelector('nav a').textContent === 'Experiments'")
    press(page, "t")
    page.until("document.documentElement.dataset.theme === 'light'")
    press(page, "?")
    page.until("!!document.querySelector('dialog[open] kbd')")
    page.key("Escape")
    check("a text lacks a language", page.run("Object.values(brim.texts).every(r => r.length === 2 && r[0] && r[1])"))
    page.click_text("header button", "Sign out")
    page.until("!!document.querySelector('#token')")
    page.close()


def expected(error):
    """The browser logs refused requests; these are part of the tests."""
    return "Failed to load resource" in error and ("401" in error or "ERR_" in error or "400" in error or "/v1/exps/00" in error)


def main():
    program = browser.find()
    if not program:
        print("skipped: no Chromium")
        return 77
    shutil.rmtree(HERE, ignore_errors=True)
    os.makedirs(HERE)
    os.chdir(HERE)
    try:
        pool = Pool()
    except NoServer as e:
        if "libmicrohttpd" not in str(e):
            raise
        print("skipped: no libmicrohttpd")
        return 77
    drive = browser.Browser(program, os.path.join(HERE, "browser"))
    page = None
    try:
        page = drive.page(pool.url + "/")
        sign_in(page, pool.tokens["boss"])
        for test in (test_submit, test_watch, test_queue):
            print(test.__name__, flush=True)
            test(page)
        for test, *given in ((test_phone, drive, pool), (test_left, page), (test_tidy, page), (test_cancel, page), (test_compare, page),
                             (test_groups, page), (test_best_again, page), (test_filters, page), (test_addresses, page), (test_one, page), (test_end, page, pool), (test_reader, drive, pool), (test_away, drive)):
            print(test.__name__, flush=True)
            test(*given)
        errors = [e for e in drive.errors if not expected(e)]
        check("the console: %s" % errors, not errors)
    except browser.Failure:
        if page:
            page.picture(os.path.join(HERE, "failure.png"))
        raise
    finally:
        drive.close()
        pool.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
