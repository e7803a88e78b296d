// The pages of a server: runs that appear by themselves, and SQL. Texts of runs and rows are text, never markup.
(() => {
  const POLL = 3000, SHOWN = 200, AT_A_TIME = 2, PAGE = 100;
  const find = id => document.getElementById(id);
  const make = (parent, kind, text, className) => {
    const made = document.createElement(kind);
    if (text !== undefined) made.textContent = visible(text);
    if (className) made.className = className;
    parent.append(made);
    return made;
  };
  // Control and bidirectional characters would hide or reorder what is beside them.
  const visible = text => String(text).replace(/[\p{Cc}\p{Cf}\p{Co}\p{Zl}\p{Zp}]/gu, each => '\\u{' + each.codePointAt(0).toString(16) + '}');
  const link = (parent, text, path, values) => {
    const made = make(parent, 'a', text);
    made.href = path + '?' + new URLSearchParams(values);
    return made;
  };
  const answer = async (address, options) => {
    const response = await fetch(address, options);
    if (response.status === 304) return null;
    if (response.status === 401) throw new Error('The server was started again: open the address that it printed.');
    if (!(response.headers.get('content-type') || '').includes('json')) throw new Error(await response.text());
    const found = await response.json();
    if (!response.ok) throw new Error([found.error.message, found.error.hint].filter(Boolean).join('\n'));
    return { found, tag: response.headers.get('etag') };
  };

  let tag = '', last = null;
  const listeners = [];
  async function poll() {
    if (!document.hidden && listeners.length) {
      try {
        const got = await answer('/api/runs', { headers: tag ? { 'If-None-Match': tag } : {} });
        if (got) { tag = got.tag; last = got.found; }
        for (const each of listeners) each(last, null, got !== null);
      } catch (error) {
        for (const each of listeners) each(last, error, false);
      }
    }
    setTimeout(poll, POLL);
  }

  function stale() {
    const shown = [...document.querySelectorAll('.bar .shown')], status = find('changed');
    if (!shown.length) return;
    listeners.push((found, error, isNew) => {
      if (error || !isNew) { if (error) status.textContent = error.message; return; }
      status.textContent = '';
      const versions = new Map(found.result.map(row => [row.run_id, row.version]));
      for (const each of shown) {
        const [, name, number] = each.dataset.run.match(/^(.*)@v(\d+)$/) || [];
        if (!name || versions.get(name) === Number(number)) continue;
        if (!versions.has(name)) { make(status, 'span', name + ' was removed. '); continue; }
        make(status, 'span', name + ' has version ' + versions.get(name) + ': ');
        link(status, 'open', '/report', { run: name });
      }
    });
  }

  const age = text => {
    const seconds = (Date.now() - Date.parse(text + 'Z')) / 1000;
    const [size, unit] = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']].find(([size]) => seconds >= size) || [1, 's'];
    return Number.isFinite(seconds) ? Math.max(0, Math.floor(seconds / size)) + ' ' + unit : '';
  };

  function runs(section) {
    const body = section.querySelector('tbody'), words = find('words'), compare = find('compare'), more = find('more');
    const rows = new Map(), summaries = new Map(), chosen = [], waiting = [];
    let shown = SHOWN, running = 0, isFirst = true;

    function spark(cell, steps, name) {
      if (!steps.length) return;
      const space = 'http://www.w3.org/2000/svg', svg = document.createElementNS(space, 'svg');
      const set = (node, values) => { for (const [key, value] of Object.entries(values)) node.setAttribute(key, value); };
      set(svg, { class: 'spark', viewBox: `0 0 ${4 * steps.length} 16`, preserveAspectRatio: 'none', role: 'img', 'aria-label': 'step times of ' + visible(name) });
      steps.forEach((value, at) => {
        const bar = document.createElementNS(space, 'rect'), height = Math.max(16 * value, 0.6);
        set(bar, { x: 4 * at, y: 16 - height, width: 3.2, height, fill: 'var(--plain)' });
        svg.append(bar);
      });
      cell.append(svg);
    }

    function fill(entry, summary) {
      const { time, steps, finding, recording } = entry.cells;
      for (const cell of [time, steps, finding, recording]) cell.textContent = '';
      if (summary.error) { make(finding, 'span', summary.error, 'wrong'); return; }
      make(time, 'span', summary.time);
      if (summary.time_of) make(time, 'small', summary.time_of);
      spark(steps, summary.steps, entry.row.run_id);
      finding.className = 'text ' + summary.severity;
      if (summary.severity) make(finding, 'b', summary.severity, 'severity');
      make(finding, 'span', summary.finding);
      make(recording, 'span', summary.recording);
    }

    async function next() {
      while (running < AT_A_TIME && waiting.length) {
        const entry = waiting.shift();
        if (rows.get(entry.key) !== entry || entry.line.hidden) { entry.isWaiting = false; continue; }
        running++;
        answer('/summary?' + new URLSearchParams({ run: entry.key }))
          .then(got => got.found, error => ({ error: error.message }))
          .then(summary => { summaries.set(entry.key, summary); fill(entry, summary); running--; next(); });
      }
    }

    function added(row) {
      const key = `${row.run_id}@v${row.version}`, line = document.createElement('tr'), cells = {};
      const box = make(make(line, 'td'), 'input');
      box.type = 'checkbox';
      box.ariaLabel = 'Select ' + visible(row.run_id);
      box.disabled = row.version === null;
      box.addEventListener('change', () => choose(key, box));
      const name = make(line, 'td');
      if (row.version === null) make(name, 'span', row.run_id); else link(name, row.run_id, '/report', { run: key });
      const of = row.ranks_expected === null ? '' : ' of ' + row.ranks_expected;
      make(name, 'small', `${row.ranks_present}${of} ranks, ${row.state}`);
      for (const each of ['time', 'steps', 'finding', 'recording']) cells[each] = make(line, 'td', '', { time: 'n', finding: 'text', recording: 'long' }[each]);
      cells.time.textContent = row.version === null ? '' : '…';
      const labels = Object.entries(row.labels || {}).map(([label, value]) => `${label}=${value}`);
      make(line, 'td', labels.join(', '), 'long');
      make(line, 'td', (row.device_names || []).join(', '), 'long');
      cells.age = make(line, 'td', age(row.ingested_at));
      cells.age.title = row.ingested_at;
      const text = [row.run_id, ...labels, ...(row.device_names || [])].join('\n').toLowerCase();
      return { key, row, line, cells, box, text, isWaiting: false };
    }

    function choose(key, box) {
      if (box.checked) chosen.push(key); else chosen.splice(chosen.indexOf(key), 1);
      if (chosen.length > 2) { const old = rows.get(chosen.shift()); if (old) old.box.checked = false; }
      compare.disabled = chosen.length !== 2;
    }

    function draw() {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let at = 0;
      for (const entry of rows.values()) {
        const fits = wanted.every(word => entry.text.includes(word));
        entry.line.hidden = !fits || ++at > shown;
        entry.cells.age.textContent = age(entry.row.ingested_at);
        if (entry.line.hidden || entry.isWaiting || entry.row.version === null) continue;
        entry.isWaiting = true;
        if (summaries.has(entry.key)) fill(entry, summaries.get(entry.key)); else waiting.push(entry);
      }
      more.hidden = at <= shown;
      find('count').textContent = `${at} of ${rows.size} runs`;
      next();
    }

    listeners.push((found, error, isNew) => {
      if (error) { find('count').textContent = error.message; return; }
      if (!isNew) { draw(); return; }
      const before = new Map(rows);
      rows.clear();
      for (const row of found.result.toReversed()) {
        const key = `${row.run_id}@v${row.version}`, entry = before.get(key) || added(row);
        if (!before.has(key) && !isFirst) entry.line.className = 'new';
        rows.set(key, entry);
      }
      isFirst = false;
      body.replaceChildren(...[...rows.values()].map(entry => entry.line));
      for (const key of chosen.filter(key => !rows.has(key))) chosen.splice(chosen.indexOf(key), 1);
      compare.disabled = chosen.length !== 2;
      find('notes').replaceChildren();
      for (const note of found.quality) make(find('notes'), 'li', note);
      draw();
    });
    words.addEventListener('input', draw);
    more.addEventListener('click', () => { shown += SHOWN; draw(); });
    compare.addEventListener('click', () => {
      const [run, head] = [...rows.keys()].reverse().filter(key => chosen.includes(key));
      location.href = '/report?' + new URLSearchParams({ run, head });
    });
  }

  function sql() {
    const editor = find('editor'), state = find('state'), stop = find('stop'), run = find('run');
    let found = null, at = 0, running = null;
    const say = (text, isWrong) => { state.textContent = text; state.className = isWrong ? 'wrong' : 'soft'; };
    const read = () => { editor.value = new URLSearchParams(location.hash.slice(1)).get('sql') ?? editor.value; };
    const keep = () => history.replaceState(null, '', '#' + new URLSearchParams({ sql: editor.value }));

    function draw() {
      const table = find('rows').querySelector('table'), names = found.columns.map(each => each.name);
      const heads = document.createElement('tr');
      for (const each of found.columns) {
        const head = make(heads, 'th', each.name, /INT|DOUBLE|FLOAT|DECIMAL/.test(each.type) ? 'n' : '');
        head.title = visible([each.type, each.unit].filter(Boolean).join(', '));
      }
      table.tHead.replaceChildren(heads);
      const lines = found.result.slice(at, at + PAGE).map(row => {
        const line = document.createElement('tr');
        for (const name of names) {
          const value = row[name], text = value === null ? '' : typeof value === 'object' ? JSON.stringify(value) : value;
          make(line, 'td', text, typeof value === 'number' ? 'n' : '').title = visible(text);
        }
        return line;
      });
      table.tBodies[0].replaceChildren(...lines);
      const end = Math.min(at + PAGE, found.result.length);
      find('place').textContent = `${found.result.length ? at + 1 : 0} to ${end} of ${found.result.length}`;
      find('before').disabled = at === 0;
      find('after').disabled = end === found.result.length;
      find('source').textContent = visible([found.provenance.runs.join(', '), ...found.quality].filter(Boolean).join('; '));
      find('rows').hidden = false;
    }

    async function post(format, use) {
      running?.abort();
      const own = running = new AbortController(), started = performance.now();
      keep();
      say('running …');
      stop.disabled = false;
      try {
        const body = JSON.stringify({ sql: editor.value, spreadsheet: format === 'csv' });
        const options = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body, signal: own.signal };
        await use(options);
        say(((performance.now() - started) / 1000).toFixed(1) + ' s');
      } catch (error) {
        if (running === own) say(own.signal.aborted ? 'stopped' : error.message, !own.signal.aborted);
      } finally {
        if (running === own) { running = null; stop.disabled = true; }
      }
    }
    const show = () => post('json', async options => {
      ({ found } = await answer('/api/query', options));
      at = 0;
      draw();
    });
    const save = format => post(format, async options => {
      const response = await fetch('/api/query?format=' + format, options);
      if (!response.ok) throw new Error((await response.json()).error.message);
      const saved = document.createElement('a');
      saved.href = URL.createObjectURL(await response.blob());
      saved.download = 'query.' + format;
      saved.click();
      setTimeout(() => URL.revokeObjectURL(saved.href), 60000);
    });

    read();
    addEventListener('hashchange', read);
    run.addEventListener('click', show);
    stop.addEventListener('click', () => running?.abort());
    editor.addEventListener('keydown', event => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) show(); });
    for (const each of document.querySelectorAll('[data-format]')) each.addEventListener('click', () => save(each.dataset.format));
    for (const each of document.querySelectorAll('[data-insert]')) {
      each.addEventListener('click', () => { editor.setRangeText(each.dataset.insert, editor.selectionStart, editor.selectionEnd, 'end'); editor.focus(); });
    }
    find('before').addEventListener('click', () => { at -= PAGE; draw(); });
    find('after').addEventListener('click', () => { at += PAGE; draw(); });
    find('link').addEventListener('click', async () => {
      keep();
      try { await navigator.clipboard.writeText(location.href); say('copied'); } catch { say('the address has the query'); }
    });
  }

  function search() {
    const field = document.querySelector('#analyses input'), rows = [...find('list').tBodies[0].rows];
    field.addEventListener('input', () => {
      const words = field.value.toLowerCase().split(/\s+/);
      for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
    });
  }

  stale();
  if (location.pathname === '/show') for (const each of document.querySelectorAll('details')) each.open = true;
  if (find('runs') && find('compare')) runs(find('runs'));
  if (find('editor')) sql();
  if (find('analyses')) search();
  poll();
})();
