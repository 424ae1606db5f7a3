-- Leases units of one key. Grants as many units as all limits of the key allow, by the clock of the engine.
--
-- KEYS[1]: the state of the key. ARGV, all whole numbers: want, need, debt, and for each limit its
-- kind, its capacity, num, den and amount:
--   kind 0: leaky bucket. The level sinks by num/den units per microsecond.
--   kind 1: refill in periods. Each new period returns `amount` units. The number of the period at time t, in
--           microseconds since the Unix epoch, is floor(t * num/den).
--   kind 2: fixed window. Each new window returns all units. Windows have numbers like periods.
-- Returns the units granted, the wait, the end of the window that ends first, and the units left at each limit.
-- The wait and the end are in microseconds from now.
--
-- For each limit, the state has the limit's numbers when it was written, the used units, a fraction of a unit in
-- 1/den, and a mark: the time of the state (kind 0) or the number of its period (kinds 1 and 2). Lua numbers are
-- doubles, which are exact below 2^53. num and den are below 2^45.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local FORMAT = 1
local FIELDS = 7
local LEAK, WINDOW = 0, 2
local MOST, EXACT = 1e15, 2 ^ 53

-- Returns quotient and remainder of (a * b + c) / m, for a and m below 2^45. If a double cannot represent the sum
-- exactly, the function divides as in long division, with seven bits of b per step, so no product reaches 2^53.
local function divide(a, b, c, m)
  local all = a * b + c
  if all < EXACT then
    local rest = math.fmod(all, m)
    return (all - rest) / m, rest
  end
  local scale = 1
  while scale <= b do scale = scale * 128 end
  local quotient, rest = 0, 0
  while scale > 1 do
    scale = scale / 128
    local group = math.floor(b / scale)
    b = b - group * scale
    local sum = rest * 128 + a * group
    rest = math.fmod(sum, m)
    quotient = quotient * 128 + (sum - rest) / m
  end
  local sum = rest + c
  rest = math.fmod(sum, m)
  return quotient + (sum - rest) / m, rest
end

local function same(one, other)
  return one.kind == other.kind and one.num == other.num and one.den == other.den
    and one.amount == other.amount
end

-- Returns the used units, rounded up.
local function whole(limit)
  return limit.used + (limit.part > 0 and 1 or 0)
end

-- Returns the time until the start of the period that is `ahead` periods after the current one.
local function until_period(limit, ahead)
  return divide(limit.den, limit.mark + ahead, limit.num - 1, limit.num) - now
end

-- Returns the time until `units` whole units and the fraction have been returned.
local function until_back(limit, units)
  if limit.kind == LEAK then
    return (divide(limit.den, units, limit.part + limit.num - 1, limit.num))
  elseif units == 0 then
    return 0
  elseif limit.kind == WINDOW then
    return until_period(limit, 1)
  end
  return until_period(limit, math.ceil(units / limit.amount))
end

-- Advances a state to the current time.
local function advance(limit)
  if limit.kind == LEAK then
    -- If the clock was set back, no time has passed and the level stays the same.
    local units, part = divide(limit.num, math.max(0, now - limit.mark), 0, limit.den)
    limit.used, limit.part = limit.used - units, limit.part - part
    if limit.part < 0 then
      limit.used, limit.part = limit.used - 1, limit.part + limit.den
    end
    if limit.used < 0 then limit.used, limit.part = 0, 0 end
    limit.mark = now
    return
  end
  local number = divide(limit.num, now, 0, limit.den)
  -- If the clock was set back across the start of a period, that period must not start a second time.
  if limit.mark == number + 1 then number = limit.mark end
  local gone = math.max(0, number - limit.mark)
  if limit.kind ~= WINDOW then
    limit.used = math.max(0, limit.used - gone * limit.amount)
  elseif number ~= limit.mark then
    limit.used = 0
  end
  limit.mark = number
end

-- Parses a stored state.
local function read(text)
  local numbers = {}
  for number in string.gmatch(text or '', '%d+') do numbers[#numbers + 1] = tonumber(number) end
  local limits = {}
  if numbers[1] ~= FORMAT then return limits end
  for at = 2, #numbers - FIELDS + 1, FIELDS do
    limits[#limits + 1] = {
      kind = numbers[at], num = numbers[at + 1], den = numbers[at + 2], amount = numbers[at + 3],
      used = numbers[at + 4], part = numbers[at + 5], mark = numbers[at + 6],
    }
  end
  return limits
end

local function write(limits)
  local text = { tostring(FORMAT) }
  for _, limit in ipairs(limits) do
    text[#text + 1] = string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f', limit.kind, limit.num, limit.den,
      limit.amount, limit.used, limit.part, limit.mark)
  end
  return table.concat(text, ' ')
end

-- Returns the old state for the limit at position `at`: a state with equal numbers if one exists, otherwise the
-- state at the same position.
local function before(limit, at, old)
  if old[at] and same(old[at], limit) then return old[at] end
  for _, other in ipairs(old) do
    if same(other, limit) then return other end
  end
  return old[at]
end

-- Continues an old state. If the numbers of the limit have changed, used units stay used and return at the new
-- rate.
local function continue(limit, from)
  limit.used, limit.part, limit.mark = 0, 0, 0
  if from and same(from, limit) then
    limit.used, limit.part, limit.mark = from.used, from.part, from.mark
    return advance(limit)
  end
  advance(limit)
  if not from then return end
  local source = {}
  for name, value in pairs(from) do source[name] = value end
  advance(source)
  limit.used = source.used
  if limit.kind == LEAK and source.kind == LEAK then
    limit.part = divide(limit.den, source.part, source.den - 1, source.den)
    if limit.part == limit.den then limit.used, limit.part = limit.used + 1, 0 end
  else
    limit.used = whole(source)
  end
end

local want, need, debt = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local text = redis.call('GET', KEYS[1])
local old, limits = read(text), {}
local granted, changed = want, debt > 0
for at = 4, #ARGV, 5 do
  local limit = {
    kind = tonumber(ARGV[at]), capacity = tonumber(ARGV[at + 1]), num = tonumber(ARGV[at + 2]),
    den = tonumber(ARGV[at + 3]), amount = tonumber(ARGV[at + 4]),
  }
  local from = before(limit, #limits + 1, old)
  limits[#limits + 1] = limit
  continue(limit, from)
  -- After the clock was set back, the state is written with the new time, so that units return by the new clock.
  changed = changed or (from ~= nil and (not same(from, limit) or from.mark > limit.mark))
  limit.used = math.min(limit.used + debt, MOST)
  granted = math.min(granted, math.max(0, limit.capacity - whole(limit)))
end
-- `need` is the cost of the cheapest waiting request. A smaller grant would be of no use to the Envoy.
if granted < need then granted = 0 end
changed = changed or granted > 0 or (text and #limits ~= #old)

local wait, left, ends, expires = 0, {}, MOST, 0
for _, limit in ipairs(limits) do
  limit.used = limit.used + granted
  local free = limit.capacity - whole(limit)
  left[#left + 1] = math.max(0, free)
  if granted < want or free < 0 then
    local missing = math.min(math.max(1, need), limit.capacity)
    local lacking = limit.used + missing - limit.capacity
    if lacking >= 0 then wait = math.max(wait, until_back(limit, lacking)) end
  end
  if limit.kind == WINDOW then
    ends = math.min(ends, (divide(limit.den, limit.mark + 1, 0, limit.num)) - now)
  end
  expires = math.max(expires, until_back(limit, limit.used))
end
-- 0 means that the key has no window.
ends = ends == MOST and 0 or math.max(1, ends)

if changed and expires > 0 then
  -- The state may expire when no unit is used any more. One second is added because the clock may jump.
  local ms = string.format('%.0f', math.min(math.ceil(expires / 1000) + 1000, MOST))
  local state = write(limits)
  local done = redis.pcall('SET', KEYS[1], state, 'PX', ms)
  if done.err then
    -- A full engine refuses the write with an OOM error. A new key then fails, but a known key replaces its old
    -- state. PEXPIRE needs no memory, so the engine permits it, and permits all writes after a script's first write.
    if not text or not string.find(done.err, 'OOM', 1, true) then return done end
    redis.call('PEXPIRE', KEYS[1], ms)
    redis.call('SET', KEYS[1], state, 'PX', ms)
  end
elseif text and expires == 0 then
  redis.call('DEL', KEYS[1])
end
return { granted, math.min(wait, MOST), ends, unpack(left) }
