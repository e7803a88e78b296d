// The timelines of a page. Times are ns since the first slice; `report/timeline.py` describes the data.
(() => {
  const AXIS = 20, GAP = 2, HEIGHT = { stream: 15, thread: 33 };
  const THREAD_ROW = { annotation: 0, host_wait: 0, dataloader: 0, operator: 1 };  // of three; calls are in the last
  const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
  const digits = value => value >= 100 ? value.toFixed(0) : value.toPrecision(3);
  const time = ns => {
    const [size, unit] = UNITS.find(([size]) => Math.abs(ns) >= size) || [1, 'ns'];
    return ns === 0 ? '0' : (ns < 0 ? '−' : '') + (size === 1 ? Math.abs(ns) : digits(Math.abs(ns) / size)) + ' ' + unit;
  };
  const element = (parent, kind, text, className) => {
    const made = document.createElement(kind);
    made.textContent = text;
    made.className = className || '';
    parent.append(made);
    return made;
  };

  function decode(text, kinds) {
    const numbers = numbersOf(text), slices = [];
    for (let at = 0, start = 0; at < numbers.length;) {
      start += numbers[at];
      const dur = numbers[at + 1], [category, name, op, waits, isCombined] = kinds[numbers[at + 2]];
      const [total, count] = isCombined ? numbers.slice(at + 3, at + 5) : [dur, 1];
      slices.push({ start, dur, category, name, op, waits: waits - 1, total, count });
      at += isCombined ? 5 : 3;
    }
    return slices;
  }

  // A color's relative luminance decides between dark and light text on it.
  const isLight = color => {
    const [r, g, b] = color.match(/\d+/g).map(each => (each / 255) ** 2.2);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18;
  };

  function timeline(figure) {
    const data = JSON.parse(figure.querySelector('script').textContent);
    const part = name => figure.querySelector(name);
    const canvas = part('canvas'), labels = part('.labels'), lanes = part('.lanes'), pinned = part('.pinned'), limit = part('.limit');
    const tip = document.getElementById('tip'), draw = canvas.getContext('2d');
    const button = name => part(`[data-do=${name}]`);
    for (const track of data.tracks) {
      track.slices = decode(track.slices, data.kinds);
      track.longest = track.slices.reduce((most, slice) => Math.max(most, slice.dur), 0);
    }
    const ranks = [...new Set(data.tracks.map(track => track.rank))];
    const tracksOf = (rank, ...lanes) => data.tracks.filter(each => each.rank === rank && lanes.includes(each.lane));
    let mark = data.marks[0], written = [];
    const hasGpu = data.tracks.some(track => track.lane === 'gpu');
    const end = Math.max(...data.tracks.flatMap(track => track.slices.map(slice => slice.start + slice.dur).slice(-50)), data.to);
    let focus = [...new Set([mark ? mark.rank : null, data.median])].filter(rank => ranks.includes(rank));
    let view = { from: data.from, to: data.to }, rows = [], patterns = {}, colors = [];
    let shown = innerWidth < 520 && ranks.length > 2 && focus.length ? focus : ranks;
    const open = new Set(hasGpu ? (focus.length ? focus.slice(0, 1) : ranks.slice(0, 1)) : ranks);

    const sums = (...lanes) => Object.fromEntries(ranks.map(rank => {
      const sum = {};
      for (const track of tracksOf(rank, ...lanes)) for (const slice of track.slices) {
        const key = data.categories[slice.category].key;
        sum[key] = (sum[key] || 0) + slice.total;
      }
      return [rank, sum];
    }));
    figure.dataset.sums = JSON.stringify(sums('gpu'));
    figure.dataset.recording = JSON.stringify(sums('gpu', 'rest'));

    function layout() {
      const thin = shown.length > 32 ? 9 : shown.length > 12 ? 13 : 19;
      rows = [];
      let y = AXIS;
      const add = (tracks, height, label, isRank) => {
        rows.push({ tracks, y, height, label, rank: tracks[0].rank, isRank });
        y += height + GAP;
      };
      for (const rank of shown) {
        const gpu = tracksOf(rank, 'gpu', 'rest');
        if (gpu.length) add(gpu, open.has(rank) ? Math.max(thin, 19) : thin, `rank ${rank}`, true);
        if (open.has(rank)) tracksOf(rank, 'stream', 'thread').forEach((track, at) =>
          add([track], HEIGHT[track.lane], gpu.length || at ? track.name : `rank ${rank}`, !gpu.length && !at));
        if (open.has(rank)) y += 4;
      }
      canvas.style.height = labels.style.height = y + 'px';
      labels.replaceChildren();
      for (const row of rows) {
        const canOpen = row.isRank && hasGpu && tracksOf(row.rank, 'stream', 'thread').length;
        const label = element(labels, canOpen ? 'button' : 'span', row.height < 11 && row.rank % 4 && !row.isMarked ? '' : row.label);
        label.style.top = row.y + 'px';
        label.style.height = row.height + 'px';
        label.title = row.isRank ? `rank ${row.rank}` : `rank ${row.rank}, ${row.tracks[0].name}`;
        if (row.height < 11) label.style.fontSize = '9px';
        if (mark && row.isRank && row.rank === mark.rank) { label.className = 'marked'; label.textContent = row.label; }
        if (!canOpen) continue;
        label.type = 'button';
        label.setAttribute('aria-expanded', open.has(row.rank));
        label.addEventListener('click', () => { open.delete(row.rank) || open.add(row.rank); layout(); paint(); });
      }
    }

    function readColors() {
      const style = getComputedStyle(document.documentElement), probe = element(figure, 'i', '');
      const rgb = name => { probe.style.color = style.getPropertyValue('--' + name); return getComputedStyle(probe).color; };
      colors = data.categories.map(category => rgb(category.color));
      patterns = { ink: rgb('ink'), soft: rgb('soft'), line: rgb('line'), paper: rgb('paper'), mark: rgb('longer') };
      data.categories.forEach((category, at) => {
        if (!category.key.endsWith('_wait') || category.key.startsWith('idle')) return;
        const tile = document.createElement('canvas'), pen = tile.getContext('2d');
        tile.width = tile.height = 6;
        pen.fillStyle = colors[at];
        pen.fillRect(0, 0, 6, 6);
        pen.strokeStyle = rgb('exposed_transfer');
        pen.lineWidth = 1.4;
        pen.beginPath();
        for (const x of [-3, 3, 9]) { pen.moveTo(x - 3, 9); pen.lineTo(x + 9, -3); }
        pen.stroke();
        patterns[at] = draw.createPattern(tile, 'repeat');
      });
      probe.remove();
    }

    const firstAt = (track, from) => {
      let low = 0, high = track.slices.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (track.slices[middle].start < from) low = middle + 1; else high = middle;
      }
      return low;
    };
    const box = (row, slice) => {
      if (row.tracks[0].lane !== 'thread') return [row.y, row.height];
      const third = row.height / 3;
      return [row.y + third * (THREAD_ROW[data.categories[slice.category].key] ?? 2), third - 1];
    };

    function paintRow(row, scale, width) {
      for (const track of row.tracks) {
        const last = {};
        for (let at = firstAt(track, view.from - track.longest); at < track.slices.length; at++) {
          const slice = track.slices[at], x = (slice.start - view.from) * scale, right = x + slice.dur * scale;
          if (x > width) break;
          if (right < 0) continue;
          const pixel = Math.floor(right * 2), [y, height] = box(row, slice);
          if (last[y] === pixel && right - x < 0.5) continue;
          last[y] = pixel;
          const left = Math.max(x, 0), size = Math.max(Math.min(right, width) - left, 0.6);
          draw.globalAlpha = slice.count > 1 ? Math.max(0.35, Math.min(1, slice.total / (slice.dur || 1))) : 1;
          draw.fillStyle = patterns[slice.category] || colors[slice.category];
          draw.fillRect(left, y, size, height);
          draw.globalAlpha = 1;
          if (size > 48 && height > 9.9) write(row.rank, slice, left, y, size, height);
          if (size > 3) { draw.fillStyle = patterns.paper; draw.fillRect(left + size - 0.5, y, 0.5, height); }
        }
      }
    }

    function write(rank, slice, left, y, width, height) {
      const name = slice.name ? short(data.names[slice.name]) : data.categories[slice.category].name;
      const shown = fitting(slice.waits < 0 ? name : `waits for rank ${slice.waits}: ${name}`, width - 6);
      if (shown.length < 4) return;
      written.push({ rank, text: shown, x: left, y, isNamed: slice.name > 0 });
      draw.fillStyle = isLight(colors[slice.category]) ? '#10161d' : '#fff';
      if (patterns[slice.category]) {
        const size = draw.measureText(shown).width + 6;
        draw.fillStyle = colors[slice.category];
        draw.fillRect(left + 1, y + 1, size, height - 2);
        draw.fillStyle = isLight(colors[slice.category]) ? '#10161d' : '#fff';
      }
      draw.fillText(shown, left + 4, y + height / 2 + 0.5);
    }
    // The text, or as many of its first characters as fit into so many pixels.
    function fitting(text, room) {
      const width = draw.measureText(text).width;
      if (width <= room) return text;
      let count = Math.floor(text.length * room / width);
      while (count > 0 && draw.measureText(text.slice(0, count) + '…').width > room) count--;
      return count ? text.slice(0, count) + '…' : '';
    }
    const short = name => name.replace(/^void |at::native::|\(anonymous namespace\)::|<unnamed>::/g, '').replace(/[<(].*/, '') || name;

    // A time since the first event, in the unit of the view, with the digits in which steps of this size differ.
    function tick(ns, step) {
      const most = Math.max(Math.abs(view.from - data.zero), Math.abs(view.to - data.zero));
      const [size, unit] = UNITS.find(([size]) => most >= size) || [1, 'ns'];
      return (ns / size).toFixed(Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9))).replace('-', '−') + ' ' + unit;
    }
    // The same to the ns, as commands take it.
    const moment = ns => (Math.round(ns - data.zero) / 1e6).toFixed(6).replace(/\.?0+$/, '') + 'ms';
    function paintAxis(width, height, scale) {
      const least = 90 / scale, power = 10 ** Math.floor(Math.log10(least));
      const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= least);
      const labeled = [];
      draw.fillStyle = patterns.soft;
      for (let at = Math.ceil((view.from - data.zero) / step) * step; at + data.zero <= view.to; at += step) {
        const x = (at + data.zero - view.from) * scale;
        draw.globalAlpha = 0.35;
        draw.fillRect(x, AXIS - 5, 1, height - AXIS + 5);
        draw.globalAlpha = 1;
        labeled.push([tick(at, step), x]);
      }
      figure.dataset.ticks = labeled.map(([text]) => text).join(', ');
      for (const edge of [data.from, data.to]) draw.fillRect((edge - view.from) * scale - 0.5, AXIS, 1, height - AXIS);
      return labeled;
    }

    // Above the rows, also where they are scrolled.
    function paintTimes(labeled, width) {
      const top = Math.round(lanes.scrollTop);
      draw.fillStyle = patterns.paper;
      draw.fillRect(0, top, width, AXIS - 1);
      draw.fillStyle = patterns.soft;
      for (const [at, x] of labeled) if (x + 50 < width) draw.fillText(at, x + 3, top + AXIS / 2);
    }

    function paintMarks(scale) {
      draw.strokeStyle = patterns.mark;
      draw.lineWidth = 2;
      for (const each of mark ? [mark] : []) for (const row of rows) {
        if (row.rank !== each.rank || !row.isRank) continue;
        const x = (each.from - view.from) * scale;
        draw.strokeRect(x, row.y, Math.max((each.to - each.from) * scale, 3), row.height);
      }
    }

    function paint() {
      const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
      if (!width) return;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      draw.scale(ratio, ratio);
      draw.font = '11px system-ui, sans-serif';
      draw.textBaseline = 'middle';
      const scale = width / (view.to - view.from);
      const labeled = paintAxis(width, height, scale);
      written = [];
      for (const row of rows) paintRow(row, scale, width);
      paintMarks(scale);
      paintTimes(labeled, width);
      part('.range').textContent = [view.from, view.to].map(at => tick(at - data.zero, length() / 100)).join(' to ');
      explainLimit((view.to - view.from) / width);
    }

    const command = (rank, from, to) => {
      const run = /^[\w@%+=:,.\/-]+$/.test(data.run) ? data.run : `'${data.run.replace(/'/g, `'"'"'`)}'`;
      return `tw export trace ${run} --rank ${rank} --from ${moment(Math.max(data.zero, from))} --to ${moment(Math.ceil(to))} -o part.json.gz${document.body.dataset.place || ''}`;
    };
    function explainLimit(pixel) {
      const here = data.spans.filter(([from, to]) => from < view.to && to > view.from);
      const all = here.filter(([from, to]) => from <= view.from + pixel && to >= view.to - pixel);
      let reached = Math.max(view.from, data.zero) + pixel;
      for (const [from, to] of here.sort((a, b) => a[0] - b[0])) if (from <= reached + pixel) reached = Math.max(reached, to);
      const outside = reached < Math.min(view.to, end) - pixel;
      const bin = all.length ? Math.min(...all.map(each => each[2])) : Math.max(0, ...here.map(each => each[2]));
      limit.hidden = !outside && bin <= 8 * pixel;
      if (limit.hidden) return;
      const steps = `step${data.steps.length > 1 ? 's' : ''} ${data.steps.join(', ')}`;
      const why = !outside ? `Slices shorter than ${time(bin)} are combined on this page.`
        : !hasGpu ? `This page has only ${steps}.`
          : `Outside of ${steps} the page has only GPU time` + (data.overviewBin ? `, in bins of ${time(data.overviewBin)}.` : '.');
      limit.textContent = `${why} Every slice of this range: `;
      element(limit, 'code', command(mark ? mark.rank : shown[0], view.from, view.to));
    }

    const length = () => view.to - view.from;

    // The slices of a rank's lanes that a time overlaps, those that overlap it longest first.
    const during = (rank, from, to, lanes, fits = () => true) => tracksOf(rank, ...lanes)
      .flatMap(track => track.slices.filter(slice => slice.start < to && slice.start + slice.dur > from && fits(slice)))
      .map(slice => ({ rank, slice, ns: Math.min(slice.start + slice.dur, to) - Math.max(slice.start, from) }))
      .sort((a, b) => b.ns - a.ns);
    // Who waits at a mark: the longest wait of each waiting rank, the longest first.
    const waiting = hasGpu ? ['gpu', 'rest'] : ['thread'];
    function waitsAt({ rank, from, to }) {
      const own = during(rank, from, to, waiting, slice => slice.waits >= 0);
      const others = ranks.flatMap(other => during(other, from, to, waiting, slice => slice.waits === rank).slice(0, 1));
      return (others.length ? others : own.slice(0, 1)).sort((a, b) => b.ns - a.ns);
    }
    // Shows the worst occurrence of a finding: who waits, and what the rank in question runs meanwhile, with names.
    function jump(key) {
      mark = data.marks.find(each => each.key === key);
      const { from, to } = mark, waits = waitsAt(mark), late = waits.length ? waits[0].slice.waits : mark.rank;
      focus = [...new Set([mark.rank, late, ...waits.map(wait => wait.rank), data.median])].filter(rank => ranks.includes(rank));
      if (hasGpu) { open.clear(); for (const rank of focus.slice(0, 2)) open.add(rank); }
      shown = ranks;
      layout();
      for (let count = Math.min(focus.length, 8); count > 1 && canvas.clientHeight > 0.68 * innerHeight; count--) {
        shown = ranks.filter(rank => focus.slice(0, count).includes(rank));
        layout();
      }
      button('ranks').textContent = shown === ranks ? 'Fewer ranks' : 'All ranks';
      // What the late rank computes; if it is not that, the innermost slice that lasts as long as the occurrence.
      const works = slice => slice.name > 0 && slice.waits < 0, kernel = hasGpu && waits.length && during(late, from, to, ['gpu', 'rest'], works)[0];
      const isKernel = kernel && kernel.ns > 0.05 * (to - from);
      const working = isKernel ? [kernel] : during(late, from, to, ['gpu', 'stream', 'thread'], works);
      const runs = working.filter(each => each.ns >= 0.9 * working[0].ns).sort((a, b) => a.slice.dur - b.slice.dur)[0];
      // As close as it takes to read the name, but within the waits.
      const readable = isKernel ? runs.slice.dur * canvas.clientWidth / 110 : Infinity;
      const span = Math.max(Math.min(1.4 * (to - from), readable), 200), isWhole = span >= to - from;
      const middle = isWhole ? (from + to) / 2 : runs.slice.start + runs.slice.dur / 2;
      const start = isWhole ? middle - span / 2 : Math.max(from, Math.min(middle - span / 2, to - span));
      show(start, start + span);
      const near = rows.filter(row => focus.slice(0, 2).includes(row.rank));
      if (near.length) lanes.scrollTop = near[0].y - AXIS - GAP;
      pinned.replaceChildren();
      const name = ({ slice }) => slice.name ? data.names[slice.name] : data.categories[slice.category].name;
      element(pinned, 'span', [`${key}, rank ${mark.rank}: ${[from, to].map(at => moment(at).replace('ms', ' ms')).join(' to ')}`,
        ...[...new Set(waits.map(name))].map(text => {
          const all = waits.filter(wait => name(wait) === text), numbers = all.map(wait => wait.rank).sort((a, b) => a - b);
          const who = all.length > 8 ? `${all.length} ranks wait up to` : all.length > 1 ? `ranks ${numbers.join(', ')} wait up to` : `rank ${numbers[0]} waits`;
          return `${who} ${time(all[0].ns)} for rank ${late} in ${text}`;
        }),
        ...(runs ? [`rank ${late} runs ${name(runs)} (${time(runs.slice.dur)})`] : [])].join(' · '));
    }

    // The slices of this page as Chrome JSON; combined ones, which may overlap, as asynchronous events.
    function chromeTrace() {
      const events = [];
      for (const rank of ranks) events.push({ ph: 'M', name: 'process_name', pid: rank, args: { name: `rank ${rank}` } });
      data.tracks.forEach((track, tid) => {
        events.push({ ph: 'M', name: 'thread_name', pid: track.rank, tid, args: { name: track.name } });
        for (const slice of track.slices) {
          const cat = data.categories[slice.category].name, name = data.names[slice.name] || cat, ts = (slice.start - data.zero) / 1000;
          const base = { name, cat, pid: track.rank, tid, ts };
          if (slice.count > 1) {
            base.id = events.length;
            events.push({ ...base, ph: 'b', args: { slices: slice.count, total_ns: slice.total } }, { ...base, ph: 'e', ts: ts + slice.dur / 1000 });
            continue;
          }
          const args = { ...(slice.op && { operator: data.names[slice.op] }), ...(slice.waits >= 0 && { waits_for: slice.waits }) };
          events.push({ ...base, ph: 'X', dur: slice.dur / 1000, args });
        }
      });
      return new TextEncoder().encode(JSON.stringify({ displayTimeUnit: 'ns', traceEvents: events })).buffer;
    }
    // As Perfetto documents: PING until it answers PONG, then the trace, to its origin alone.
    function openInPerfetto() {
      const address = figure.dataset.perfetto, origin = new URL(address).origin, opened = window.open(address);
      const say = text => { part('.range').textContent = text; };
      if (!opened) return say('The browser blocked the new tab; allow popups for this page.');
      const ping = setInterval(() => opened.closed ? clearInterval(ping) : opened.postMessage('PING', origin), 50);
      const answer = ({ source, origin: from, data: text }) => {
        if (source !== opened || from !== origin || text !== 'PONG') return;
        clearInterval(ping);
        removeEventListener('message', answer);
        const title = `${data.run}, ${data.steps.length ? 'steps ' + data.steps.join(', ') : 'recording'}`;
        opened.postMessage({ perfetto: { buffer: chromeTrace(), title, fileName: 'page.json' } }, origin);
      };
      addEventListener('message', answer);
    }
    function show(from, to, isEcho) {
      const span = Math.min(Math.max(to - from, 50), Math.max(end, figure.timeline?.span ?? 0));
      const start = Math.max(Math.min(from, end - 0.1 * span), 0);
      view = { from: start, to: start + span };
      paint();
      if (!isEcho) figure.dispatchEvent(new CustomEvent('timeline-view', { bubbles: true, detail: { from: start - data.from, span } }));
    }
    const zoom = (factor, center) => {
      const middle = center ?? (view.from + view.to) / 2;
      show(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
    };
    const move = share => show(view.from + share * length(), view.to + share * length());
    const actions = {
      in: () => zoom(0.6), out: () => zoom(1 / 0.6), left: () => move(-0.2), right: () => move(0.2),
      home: () => show(data.from, data.from + figure.timeline.span), all: () => show(0, end),
      mark: () => jump(mark.key),
      perfetto: () => openInPerfetto(),
      ranks: () => { shown = shown === ranks ? focus : ranks; button('ranks').textContent = shown === ranks ? 'Fewer ranks' : 'All ranks'; layout(); paint(); },
    };
    const keys = { ArrowLeft: 'left', ArrowRight: 'right', '+': 'in', '=': 'in', '-': 'out', '−': 'out', 0: 'home', a: 'all', f: 'mark' };
    for (const [name, action] of Object.entries(actions)) button(name).addEventListener('click', action);
    button('mark').hidden = !mark;
    button('ranks').hidden = ranks.length < 3 || !focus.length;
    if (shown === ranks) button('ranks').textContent = 'Fewer ranks';
    lanes.addEventListener('scroll', () => paint());
    canvas.addEventListener('keydown', event => {
      const name = keys[event.key];
      if (!name || event.ctrlKey || event.metaKey || event.altKey || (name === 'mark' && !mark)) return;
      event.preventDefault();
      actions[name]();
    });
    canvas.addEventListener('wheel', event => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      zoom(Math.exp(event.deltaY / 400), view.from + event.offsetX / canvas.clientWidth * length());
    }, { passive: false });

    function at(x, y) {
      const row = rows.find(each => y >= each.y && y < each.y + each.height);
      if (!row) return null;
      const pixel = length() / canvas.clientWidth, ns = view.from + x * pixel;
      let best = null;
      for (const track of row.tracks) {
        for (let index = firstAt(track, ns - track.longest - 2 * pixel); index < track.slices.length; index++) {
          const slice = track.slices[index];
          if (slice.start > ns + 2 * pixel) break;
          const [top, height] = box(row, slice);
          if (y < top || y >= top + height || slice.start + slice.dur < ns - 2 * pixel) continue;
          const gap = Math.max(slice.start - ns, ns - slice.start - slice.dur, 0);
          if (!best || gap < best.gap || (gap === best.gap && slice.dur < best.slice.dur)) best = { row, track, slice, gap };
        }
      }
      return best;
    }
    function describe({ track, slice }) {
      const category = data.categories[slice.category].name, name = data.names[slice.name];
      const parts = [name ? `${name} (${category})` : category];
      if (slice.count > 1) parts.push(`${slice.count} slices combined, ${time(slice.total)} in total`);
      else parts.push(time(slice.dur));
      parts.push(`start ${moment(slice.start).replace('ms', ' ms')}`, `rank ${track.rank}` + (track.lane === 'gpu' || track.lane === 'rest' ? '' : `, ${track.name}`));
      if (slice.waits >= 0) parts.push(`waits for rank ${slice.waits}`);
      if (slice.op) parts.push(`operator ${data.names[slice.op]}`);
      return parts.join(' · ');
    }
    let dragged = null;
    canvas.addEventListener('pointerdown', event => {
      dragged = { x: event.clientX, view: { ...view }, moved: false };
      canvas.focus({ preventScroll: true });
    });
    addEventListener('pointerup', () => { dragged = null; canvas.style.cursor = ''; });
    canvas.addEventListener('pointermove', event => {
      event.stopPropagation();
      if (dragged && event.buttons) {
        const shift = (dragged.x - event.clientX) / canvas.clientWidth * (dragged.view.to - dragged.view.from);
        if (Math.abs(dragged.x - event.clientX) > 3) { dragged.moved = true; canvas.style.cursor = 'grabbing'; }
        if (dragged.moved) show(dragged.view.from + shift, dragged.view.to + shift);
      }
      const found = dragged?.moved ? null : at(event.offsetX, event.offsetY);
      tip.hidden = !found;
      if (!found) return;
      tip.textContent = describe(found);
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - width - 8)) + 'px';
      tip.style.top = (event.clientY - height - 12 > 4 ? event.clientY - height - 12 : event.clientY + 18) + 'px';
    });
    canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
    let wasDragged = false;
    canvas.addEventListener('pointerup', () => { wasDragged = Boolean(dragged?.moved); });
    canvas.addEventListener('dblclick', event => zoom(0.4, view.from + event.offsetX / canvas.clientWidth * length()));
    canvas.addEventListener('click', event => {
      if (wasDragged) return;
      const found = at(event.offsetX, event.offsetY);
      pinned.replaceChildren();
      if (!found) return;
      element(pinned, 'span', describe(found) + ' ');
      const name = data.names[found.slice.name], table = document.querySelector('table[data-name=kernel_summary]');
      if (name && table && found.track.lane !== 'thread') {
        const link = element(pinned, 'a', 'in the kernel table');
        link.href = '#kernels';
        link.addEventListener('click', () => {
          const field = document.querySelector(`input[aria-controls="${table.id}"]`);
          table.closest('details').open = true;
          field.value = name.split(' … ')[0];
          field.dispatchEvent(new Event('input'));
        });
      }
      element(pinned, 'br', '');
      element(pinned, 'code', command(found.track.rank, found.slice.start - found.slice.dur, found.slice.start + 2 * found.slice.dur));
    });

    // The longest slice with a name, and where it is drawn; `reveal` shows it.
    const find = name => {
      const code = data.names.indexOf(name);
      let best = null;
      if (code > 0) for (const track of data.tracks) for (const slice of track.slices)
        if (slice.name === code && track.lane === 'stream' && (!best || slice.dur > best.slice.dur)) best = { track, slice };
      return best;
    };
    const reveal = name => {
      const found = find(name);
      if (!found) return null;
      open.add(found.track.rank);
      if (!shown.includes(found.track.rank)) shown = ranks;
      layout();
      show(found.slice.start - 4 * found.slice.dur, found.slice.start + 5 * found.slice.dur);
      const row = rows.find(each => each.tracks.includes(found.track)), frame = canvas.getBoundingClientRect();
      const x = (found.slice.start + found.slice.dur / 2 - view.from) / length() * canvas.clientWidth;
      return { x: frame.left + x, y: frame.top + row.y + row.height / 2, dur: found.slice.dur };
    };

    const used = new Set(data.tracks.flatMap(track => track.slices.map(slice => slice.category)));
    const inLegend = new Set();
    data.categories.forEach((category, at) => {
      // Streams have the colors of the GPU time.
      if (!used.has(at) || (inLegend.has(category.color) && ['communication', 'memory'].includes(category.key))) return;
      inLegend.add(category.color);
      const item = element(part('.legend'), 'li', '');
      element(item, 'i', '').style.background = category.key === 'exposed_wait'
        ? `repeating-linear-gradient(135deg,var(--${category.color}) 0 3px,var(--exposed_transfer) 3px 4px)` : `var(--${category.color})`;
      item.append(category.name);
    });
    figure.timeline = { span: data.to - data.from, show, reveal, jump, marks: data.marks.map(each => each.key), written: () => written, ranks: () => shown, names: new Set(data.names), view: () => view, start: data.from };
    const refresh = () => { readColors(); layout(); paint(); };
    new ResizeObserver(() => paint()).observe(canvas.parentElement);
    new MutationObserver(refresh).observe(document.documentElement, { attributeFilter: ['data-theme'] });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', refresh);
    refresh();
    // Of many ranks, the one of the finding is in view.
    const marked = rows.find(row => mark && row.isRank && row.rank === mark.rank);
    if (marked) lanes.scrollTop = marked.y - lanes.clientHeight / 3;
  }

  const figures = [...document.querySelectorAll('figure.timeline')];
  figures.forEach(timeline);
  // Timelines of two runs have one scale and move together.
  const span = Math.max(...figures.map(figure => figure.timeline.span));
  if (figures.length > 1) for (const figure of figures) {
    figure.timeline.span = span;
    figure.timeline.show(figure.timeline.start, figure.timeline.start + span, true);
    figure.addEventListener('timeline-view', ({ detail }) => {
      for (const other of figures) {
        if (other === figure) continue;
        const from = other.timeline.start + detail.from;
        other.timeline.show(from, from + detail.span, true);
      }
    });
  }
  // Names in tables lead to their longest slice.
  for (const cell of document.querySelectorAll('table[data-name] tbody td:not(.n)')) {
    const text = cell.dataset.full ?? cell.textContent, name = text.length > 160 ? `${text.slice(0, 80)} … ${text.slice(-80)}` : text;
    const figure = figures.find(each => text.length > 3 && each.timeline.names.has(name));
    if (!figure) continue;
    cell.classList.add('jump');
    cell.addEventListener('click', () => { if (figure.timeline.reveal(name)) figure.scrollIntoView({ block: 'start' }); });
  }
  for (const link of document.querySelectorAll('[data-jump]')) {
    const figure = figures.find(each => each.timeline.marks.includes(link.dataset.jump));
    link.hidden = !figure;
    if (figure) link.addEventListener('click', () => figure.timeline.jump(link.dataset.jump));
  }
})();
