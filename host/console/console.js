// The console: asks the control API of the host that served it once a second, and draws what it says. No framework.
'use strict';

const $ = (id) => document.getElementById(id);

// An element. Text goes in as text, never as markup: messages and reasons are written by strangers.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child != null).map((child) => child instanceof Node ? child : String(child)));
  return element;
}

// ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────

const short = (digest) => (digest ?? '').slice(0, 12);
function count(number) {
  if (number == null || Number.isNaN(number)) return '–';
  if (number >= 1e9) return (number / 1e9).toFixed(2) + ' G';
  if (number >= 1e6) return (number / 1e6).toFixed(2) + ' M';
  if (number >= 1e4) return (number / 1e3).toFixed(1) + ' k';
  return number >= 100 || Number.isInteger(number) ? Math.round(number).toLocaleString('en') : number.toFixed(1);
}
function span(ms) {
  if (ms == null || Number.isNaN(ms)) return '–';
  if (ms < 1000) return Math.round(ms) + ' ms';
  if (ms < 120e3) return (ms / 1e3).toFixed(1) + ' s';
  if (ms < 2 * 3600e3) return (ms / 60e3).toFixed(1) + ' min';
  if (ms < 48 * 3600e3) return (ms / 3600e3).toFixed(1) + ' h';
  return (ms / 86400e3).toFixed(1) + ' days';
}
const letters = (number) => `${count(number)} letter${number === 1 ? '' : 's'}`;
const mebibytes = (bytes) => (bytes / 1048576).toFixed(1) + ' MiB';

// ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────────

const TOKEN = 'weir-token';
class Refused extends Error {}

async function ask(path, { method = 'GET', body, query } = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query ?? {})) if (value !== '' && value != null) url.searchParams.set(name, value);
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = 'Bearer ' + token;
  const response = await fetch(url, { method, body, headers, cache: 'no-store' });
  if (response.status === 401) {
    const given = await choose('This host asks for its token', 'It is kept until this tab is closed.', 'Use it', true);
    if (given == null) throw new Refused('no token was given');
    sessionStorage.setItem(TOKEN, given);
    return ask(path, { method, body, query });
  }
  const text = await response.text();
  let answer = text;
  try { answer = JSON.parse(text); } catch { /* metrics are text */ }
  if (!response.ok) throw new Refused(answer?.error ?? text ?? String(response.status));
  return answer;
}

// Asks a person. The text typed, '' for a plain yes, or null.
let asking = null;
function choose(title, text, yes, typed = false) {
  asking ??= new Promise((resolve) => {
    const dialog = $('dialog');
    $('dialog-title').textContent = title;
    $('dialog-text').textContent = text;
    $('dialog-yes').textContent = yes;
    $('dialog-input').hidden = !typed;
    $('dialog-input').value = '';
    dialog.returnValue = 'no';
    dialog.addEventListener('close', () => {
      asking = null;
      resolve(dialog.returnValue === 'yes' ? $('dialog-input').value : null);
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

function say(text, bad = false) {
  $('said').hidden = false;
  $('said').textContent = text;
  $('said').classList.toggle('bad', bad);
}

// Carries out what a button asks for: once at a time, and with a word about the outcome.
async function act(button, work) {
  button.disabled = true;
  button.setAttribute('aria-busy', 'true');
  try {
    const done = await work();
    if (done) say(done);
  } catch (error) {
    say(error.message, true);
  } finally {
    button.disabled = false;
    button.removeAttribute('aria-busy');
    refresh();
  }
}

// ── what is known ────────────────────────────────────────────────────────────────────────────────────────────────

const POINTS = 600;
const past = { time: [], read: [], visible: [], rejected: [], p50: [], p95: [], p99: [], lag: [] };
let last = null;

// Samples of Prometheus' text: [labels, value] of one metric.
function samples(text, name) {
  const found = [];
  for (const line of text.split('\n')) {
    if (!line.startsWith(name) || !'{ '.includes(line[name.length])) continue;
    const labels = Object.fromEntries([...line.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, value]) => [key, value]));
    found.push([labels, Number(line.slice(line.lastIndexOf(' ') + 1))]);
  }
  return found;
}

function note(pipeline, status, metrics) {
  const now = performance.now();
  const seen = { now, events: {}, epoch: status.summary.epoch };
  const put = (kind, part, value) => { seen.events[kind + ' ' + part] = value; };
  for (const source of pipeline.sources) put('source', source.name, source.events);
  for (const step of pipeline.steps) { put('in', step.name, step.events_in); put('out', step.name, step.events_out); }
  for (const sink of pipeline.sinks) put('sink', sink.name, sink.events);
  put('all', 'read', status.summary.events_in);
  put('all', 'rejected', status.summary.rejected);
  put('all', 'visible', Object.values(status.summary.sinks).reduce((sum, sink) => sum + sink.rows, 0));
  seen.epochSince = last && last.epoch === seen.epoch ? last.epochSince : now;
  const seconds = last ? (now - last.now) / 1000 : 0;
  seen.rate = {};
  for (const [key, value] of Object.entries(seen.events)) {
    const before = last?.events[key];
    // Smoothed a little: sinks count once an epoch. A restarted host begins at zero.
    const rate = before == null || value < before || !seconds ? 0 : (value - before) / seconds;
    seen.rate[key] = last?.rate?.[key] == null ? rate : 0.6 * rate + 0.4 * last.rate[key];
  }
  seen.lag = samples(metrics, 'weir_source_lag_events').reduce((sum, [, value]) => sum + value, 0);
  seen.hasLag = samples(metrics, 'weir_source_lag_events').length > 0;
  const marks = samples(metrics, 'weir_step_watermark_seconds').map(([, value]) => value).filter((value) => value > 0);
  seen.watermark = marks.length ? Date.now() - Math.min(...marks) * 1000 : null;
  const slowest = Object.values(status.summary.sinks).map((sink) => sink.latency_recent).filter((latency) => latency.count).sort((a, b) => b.p99_ms - a.p99_ms)[0];
  seen.latency = slowest ?? {};
  if (last) {
    const push = (name, value) => { past[name].push(value); if (past[name].length > POINTS) past[name].shift(); };
    push('time', Date.now() / 1000);
    push('read', seen.rate['all read']); push('visible', seen.rate['all visible']); push('rejected', seen.rate['all rejected']);
    push('p50', seen.latency.p50_ms ?? null); push('p95', seen.latency.p95_ms ?? null); push('p99', seen.latency.p99_ms ?? null);
    push('lag', seen.hasLag ? seen.lag : null);
  }
  last = seen;
}

// ── drawing ──────────────────────────────────────────────────────────────────────────────────────────────────────

const PHASES = { running: 'good', barrier: 'good', manifest: 'good', committing: 'good', starting: 'warn', backoff: 'bad', ended: 'bad' };

function drawHead(pipeline, status) {
  $('name').textContent = pipeline.pipeline;
  document.title = pipeline.pipeline + ' · Weir';
  const flows = PHASES[status.phase] === 'good';
  const phase = status.paused ? 'paused' : flows ? 'running' : status.phase;
  if ($('phase').textContent !== phase) $('phase').textContent = phase;
  $('phase').className = 'pill ' + (status.paused ? 'warn' : PHASES[status.phase] ?? 'warn');
  $('slice').textContent = (pipeline.tasks > 1 ? `task ${pipeline.task} of ${pipeline.tasks}, ` : '') + `${pipeline.workers} workers`;
  $('pause').textContent = status.paused ? 'Resume' : 'Pause';
  $('pause').dataset.paused = status.paused;
}

function drawTiles(status) {
  const tiles = [
    ['Read a second', count(last.rate['all read'])],
    ['Visible rows a second', count(last.rate['all visible'])],
    ['Latency, P99', span(last.latency.p99_ms)],
    ['Waiting in sources', last.hasLag ? count(last.lag) : '–'],
    ['Epoch', `${status.summary.epoch ?? '–'} `, span(performance.now() - last.epochSince) + ' ago'],
    ...last.watermark == null ? [] : [['Watermark behind', span(last.watermark)]],
    ['Rejected in all', count(status.summary.rejected)],
    ['Restarts', count(status.summary.restarts)],
  ];
  $('tiles').replaceChildren(...tiles.map(([name, value, more]) =>
    h('div', { 'data-tile': name }, h('dd', null, value, more ? h('small', null, more) : null), h('dt', null, name))));
}

function drawGraph(pipeline, status) {
  const rate = (key) => count(last.rate[key]) + '/s';
  const node = (kind, name, ...lines) => h('div', { class: 'node ' + kind, 'data-node': name }, h('b', null, name), lines);
  const stages = [h('div', { class: 'stage' }, pipeline.sources.map((source) =>
    node('source', source.name, h('span', null, source.kind + ' source'), h('span', { class: 'rate' }, rate('source ' + source.name)))))];
  const edge = (key) => h('div', { class: 'edge', 'aria-hidden': 'true' }, rate(key));
  let key = 'all read';
  for (const step of pipeline.steps) {
    const hurt = step.refused + step.failed;
    stages.push(edge(key), h('div', { class: 'stage' }, node('step', step.name,
      h('span', null, step.world ?? 'step', ' ', h('code', null, short(step.running))),
      h('span', { class: 'rate' }, rate('in ' + step.name)),
      step.filtered ? h('span', null, count(step.filtered) + ' filtered') : null,
      hurt ? h('span', { class: 'hurt' }, count(hurt) + ' rejected') : null)));
    key = 'out ' + step.name;
  }
  stages.push(edge(key), h('div', { class: 'stage' }, pipeline.sinks.map((sink) =>
    node('sink', sink.name, h('span', null, sink.kind + ' sink'), h('span', { class: 'rate' }, rate('sink ' + sink.name)),
      h('span', null, count(status.summary.sinks[sink.name]?.rows ?? 0) + ' visible')))));
  $('graph').replaceChildren(...stages);
}

function drawExplanation({ summary, findings: all }) {
  // Between two messages every source waits for the outside: of one that delivers that is not worth a word.
  const findings = all.filter((finding) => !(finding.why.startsWith('it waits for the outside') && last.rate['source ' + finding.name] > 0));
  const explanation = { summary: findings.length ? summary : 'Everything moves.', findings };
  const key = JSON.stringify(explanation);
  if ($('explain').dataset.key === key) return;
  $('explain').dataset.key = key;
  $('explain').replaceChildren(
    h('p', null, h('strong', null, explanation.summary)),
    h('ul', null, explanation.findings.map((finding) => h('li', null,
      h('b', null, `${finding.about} ${finding.name}`.trim()), ': ', finding.why,
      finding.seconds == null ? null : ` (${finding.seconds} s)`,
      h('div', { class: 'quiet' }, '→ ', finding.advice)))));
}

let plots = [];
function makePlots() {
  plots.forEach(({ plot }) => plot.destroy());
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue('--' + name).trim();
  const axis = { stroke: colour('quiet'), grid: { stroke: colour('line'), width: 1 }, ticks: { stroke: colour('line'), width: 1 } };
  const make = (id, unit, series) => {
    const place = $(id);
    const value = (_, number) => number == null ? '–' : unit(number);
    const plot = new uPlot({
      width: place.clientWidth || 320, height: 200, cursor: { y: false },
      scales: { y: { range: (_, __, max) => [0, Math.max(max * 1.1, 1)] } },
      axes: [axis, { ...axis, size: 62, values: (_, ticks) => ticks.map(unit) }],
      series: [{ value: (_, time) => time == null ? '–' : new Date(time * 1000).toLocaleTimeString() },
        ...series.map(([label, , shade]) => ({ label, stroke: colour(shade), width: 2, value, points: { show: false } }))],
    }, data(series), place);
    return { plot, place, series, unit };
  };
  plots = [
    make('plot-rate', count, [['read', 'read', 'one'], ['visible', 'visible', 'two'], ['rejected', 'rejected', 'three']]),
    make('plot-latency', span, [['P50', 'p50', 'one'], ['P95', 'p95', 'two'], ['P99', 'p99', 'three']]),
    make('plot-lag', count, [['waiting', 'lag', 'one']]),
  ];
}
const data = (series) => [past.time, ...series.map(([, name]) => past[name])];

function drawPlots() {
  for (const { plot, place, series, unit } of plots) {
    plot.setData(data(series));
    const now = series.map(([label, name]) => `${label} ${unit(past[name].at(-1))}`).join(', ');
    place.setAttribute('aria-label', 'Now: ' + now);
  }
}

// ── modules ──────────────────────────────────────────────────────────────────────────────────────────────────────

const cards = new Map();

function drawModules(pipeline) {
  for (const step of pipeline.steps.filter((step) => step.world)) {
    if (!cards.has(step.name)) {
      cards.set(step.name, makeCard(step.name, step.world));
      $('modules').append(cards.get(step.name).card);
    }
    cards.get(step.name).draw(step);
  }
  if (!cards.size) $('modules').replaceChildren(h('p', { class: 'card quiet' }, 'No step runs a module.'));
}

function makeCard(name, world) {
  const facts = h('p', { class: 'quiet' });
  const versions = h('ol', { class: 'versions', 'aria-label': 'Versions, newest first' });
  const report = h('div', { class: 'report', role: 'status', hidden: true });
  const file = h('input', { type: 'file', accept: '.wasm,application/wasm', required: true, name: 'module' });
  const why = h('input', { name: 'why', maxlength: 400, placeholder: 'hash emails', autocomplete: 'off' });
  const messages = h('input', { name: 'messages', type: 'number', min: 1, value: 10000, size: 8 });
  const path = (what) => `/v1/steps/${encodeURIComponent(name)}/${what}`;
  const swap = (module) => ask(path('swap'), { method: 'POST', body: module, query: { why: why.value } }).then(told);
  const told = (swapped) => swapped.changed
    ? `${name} runs ${short(swapped.module)} from epoch ${swapped.since_epoch} on` : `${name} runs ${short(swapped.module)} already`;
  const chosen = () => {
    if (!file.files[0]) throw new Refused('choose a module first');
    return file.files[0];
  };
  const tryIt = h('button', { type: 'button', name: 'shadow', onclick: () => act(tryIt, async () => {
    const module = chosen();
    report.hidden = false;
    report.replaceChildren(h('p', null, `Trying ${module.name} beside the running module…`));
    try {
      const found = await ask(path('shadow'), { method: 'POST', body: module, query: { messages: messages.value, seconds: 30 } });
      drawReport(report, found, () => swap(module));
    } catch (error) {
      report.hidden = true;
      throw error;
    }
  }) }, 'Try beside');
  const swapIt = h('button', { type: 'button', name: 'swap', onclick: () => act(swapIt, () => swap(chosen())) }, 'Swap in');
  const back = h('button', { type: 'button', name: 'rollback', onclick: () => act(back, () =>
    ask(path('rollback'), { method: 'POST', query: { why: why.value } }).then(told)) }, 'Roll back');
  const card = h('article', { class: 'card module', 'data-step': name, 'aria-label': 'Module of ' + name },
    h('header', null, h('h3', null, name), h('span', { class: 'quiet' }, world)), facts,
    h('form', { class: 'row', onsubmit: (event) => event.preventDefault() },
      h('label', null, 'New module', file), h('label', null, 'Reason, for the history', why),
      world === 'transformer' ? h('label', null, 'Messages to try', messages) : null,
      world === 'transformer' ? tryIt : null, swapIt, back),
    report, versions);
  let key = '';
  return { card, draw(step) {
    facts.replaceChildren('Runs ', h('code', { class: 'running', title: step.running ?? '' }, short(step.running) || '–'),
      step.running && step.running !== step.configured ? ', not the file’s' : '',
      ` · ${count(step.refused)} refused · ${count(step.failed)} failed · ${mebibytes(step.memory_bytes)}`);
    back.hidden = step.versions.length < 2;
    const next = JSON.stringify(step.versions);
    if (next === key) return;
    key = next;
    versions.replaceChildren(...step.versions.slice().reverse().map((version, at) => {
      const again = h('button', { type: 'button', onclick: () => act(again, () =>
        ask(path('rollback'), { method: 'POST', query: { to: version.digest, why: why.value } }).then(told)) }, 'Run again');
      return h('li', null, h('span', null, h('code', { title: version.digest }, short(version.digest)),
        ` since epoch ${version.since_epoch}, ${new Date(version.at_ms).toLocaleString()}: ${version.why}`),
        version.digest === step.running ? h('span', { class: 'quiet mark' }, at === 0 ? 'runs' : '') : again);
    }));
  } };
}

function drawReport(report, found, promote) {
  const rows = [['rows', (s) => count(s.rows)], ['refused', (s) => count(s.refused)], ['failed', (s) => count(s.failed)],
    ['CPU a message', (s) => Math.round(s.cpu_ns_per_message).toLocaleString('en') + ' ns'], ['memory', (s) => mebibytes(s.memory_bytes_max)]];
  const button = h('button', { type: 'button', class: 'primary', name: 'promote', onclick: () => act(button, async () => {
    const said = await promote();
    report.hidden = true;
    return said;
  }) }, 'Promote: swap it in');
  const away = h('button', { type: 'button', onclick: () => { report.hidden = true; } }, 'Dismiss');
  report.replaceChildren(
    h('div', { class: 'scroll' }, h('table', { class: 'sides' },
      h('caption', null, `${count(found.messages)} messages in ${found.seconds.toFixed(1)} s, `, h('span', { class: 'differing' }, count(found.differing)), ' with another outcome'),
      h('thead', null, h('tr', null, h('th', { scope: 'col' }, ''), h('th', { scope: 'col' }, 'runs ', h('code', null, short(found.running.module))),
        h('th', { scope: 'col' }, 'tried ', h('code', null, short(found.candidate.module))))),
      h('tbody', null, rows.map(([name, of]) => h('tr', null, h('th', { scope: 'row' }, name), h('td', null, of(found.running)), h('td', null, of(found.candidate))))))),
    found.samples.length ? h('details', null, h('summary', null, `${found.samples.length} of the messages that differ`),
      found.samples.map((sample) => h('pre', null, `partition ${sample.partition} offset ${sample.offset}\n  in     ${sample.input}\n  runs   ${sample.running}\n  tried  ${sample.candidate}`))) : null,
    h('p', { class: 'row' }, button, away));
}

// ── dead letters ─────────────────────────────────────────────────────────────────────────────────────────────────

const filter = () => Object.fromEntries(new FormData($('filter')));
let lettersFor = null;

// How long the host took to read them last: files of letters may be large.
let readingTook = 0;

async function drawLetters() {
  let found;
  const began = performance.now();
  try {
    found = await ask('/v1/dead-letters', { query: { ...filter(), limit: 50 } });
  } catch (error) {
    $('letters-total').textContent = error.message;
    $('letters').replaceChildren();
    $('replay').disabled = true;
    return;
  } finally {
    readingTook = performance.now() - began;
  }
  $('replay').disabled = found.open === 0;
  $('letters-total').textContent = `${count(found.total)} dead letters, ${count(found.open)} of them not replayed`
    + (found.total > found.letters.length ? `; the last ${found.letters.length} are shown` : '');
  const select = $('filter').elements.step;
  const known = new Set([...select.options].map((option) => option.value));
  for (const letter of found.letters) if (!known.has(letter.step)) { known.add(letter.step); select.append(h('option', { value: letter.step }, letter.step)); }
  const open = new Set([...$('letters').querySelectorAll('details[open]')].map((details) => details.dataset.id));
  $('letters').replaceChildren(...found.letters.slice().reverse().map((letter) => {
    const button = h('button', { type: 'button', onclick: () => act(button, () => replay({ id: letter.id })) }, 'Replay this one');
    return h('li', null, h('details', { 'data-id': letter.id, open: open.has(letter.id) },
      h('summary', null, h('b', null, letter.step), ' ', letter.reason, ' ',
        h('span', { class: 'quiet' }, `${letter.partition}/${letter.offset}`, letter.replay == null ? '' : ` · in replay ${letter.replay}`)),
      h('pre', null, JSON.stringify(letter, null, 2)), letter.replay == null ? button : null));
  }));
}

async function replay(query) {
  const done = await ask('/v1/dead-letters/replay', { method: 'POST', query });
  lettersFor = null;
  return done.letters ? `${letters(done.letters)} replayed, ${count(done.rejected)} rejected again` : 'nothing to replay';
}

// ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────

let refreshing = false;
async function refresh() {
  if (refreshing || document.hidden && last) return;
  refreshing = true;
  try {
    const [pipeline, status, explanation, metrics] = await Promise.all(
      [ask('/v1/pipeline'), ask('/v1/status'), ask('/v1/explain'), ask('/metrics')]);
    note(pipeline, status, metrics);
    drawHead(pipeline, status);
    drawTiles(status);
    drawGraph(pipeline, status);
    drawExplanation(explanation);
    drawModules(pipeline);
    drawPlots();
    // Letters are files: read again only when there are more of them, and not at every tick of a flood.
    if (!lettersFor || status.summary.rejected !== lettersFor.rejected && performance.now() - lettersFor.at > 5000 + 50 * readingTook) {
      lettersFor = { rejected: status.summary.rejected, at: performance.now() };
      await drawLetters();
    }
  } catch (error) {
    $('phase').textContent = error instanceof Refused ? 'refused' : 'no answer';
    $('phase').className = 'pill bad';
  } finally {
    refreshing = false;
  }
}

function begin() {
  makePlots();
  // No submit button: Enter in the field would press the first of them.
  $('dialog-no').addEventListener('click', () => $('dialog').close('no'));
  $('pause').addEventListener('click', (event) => {
    const paused = event.currentTarget.dataset.paused === 'true';
    act(event.currentTarget, () => ask(paused ? '/v1/resume' : '/v1/pause', { method: 'POST' })
      .then(() => paused ? 'Sources read again.' : 'Sources read nothing until they are resumed.'));
  });
  $('checkpoint').addEventListener('click', (event) => act(event.currentTarget, () =>
    ask('/v1/checkpoint', { method: 'POST' }).then((done) => `Epoch ${done.epoch} is visible.`)));
  $('drain').addEventListener('click', (event) => {
    const button = event.currentTarget;
    act(button, async () => {
      const sure = await choose('Drain the pipeline?', 'It reads no more, fires all windows, commits, and its log is finished: it can’t be started again.', 'Drain');
      if (sure == null) return null;
      await ask('/v1/drain', { method: 'POST' });
      return 'Draining: it ends when everything is committed.';
    });
  });
  $('filter').addEventListener('submit', (event) => { event.preventDefault(); drawLetters(); });
  $('replay').addEventListener('click', (event) => {
    const button = event.currentTarget;
    act(button, async () => {
      const sure = await choose('Replay these letters?', 'They go once more into what rejected them, as it runs now, and on into the sinks. Each letter is replayed once ever.', 'Replay');
      return sure == null ? null : replay(filter());
    });
  });
  let sized;
  new ResizeObserver(() => {
    clearTimeout(sized);
    sized = setTimeout(() => plots.forEach(({ plot, place }) => plot.setSize({ width: place.clientWidth, height: 200 })), 100);
  }).observe($('main'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', makePlots);
  refresh();
  setInterval(refresh, 1000);
}

begin();
