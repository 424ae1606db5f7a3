-- Grants units of one key: as many as all of its limits allow, by the clock of the engine.
--
-- KEYS[1]: the state of the key. ARGV, all of them whole numbers: want, need, debt, and for each limit its
-- kind, its capacity, num, den and amount:
--   kind 0: a level that leaks num/den units each microsecond;
--   kind 1: periods, of which the one at the time t (microseconds since the Unix epoch) has the number
--           floor(t * num/den); `amount` units come back with each;
--   kind 2: windows, numbered likewise; all units come back with each.
-- Answers with the units granted, the wait and the end of the first window, times in microseconds from now,
-- and the units left at each limit.
--
-- The state holds for each limit the numbers it was written with, the units used, a part of a unit in 1/den,
-- and the time (kind 0) or the number of the period (1, 2) they are of. A number is exact below 2^53; num and
-- den are below 2^45.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local FORMAT = 1
local FIELDS = 7
local LEAK, WINDOW = 0, 2
local MOST, EXACT = 1e15, 2 ^ 53

-- The quotient and the rest of (a * b + c) / m, for a and m below 2^45. Where the sum is not exact, it takes b
-- in groups of seven bits, so that no product reaches 2^53.
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

-- The units of a level, those begun included.
local function whole(limit)
  return limit.used + (limit.part > 0 and 1 or 0)
end

-- The time until the period begins that is so many after the current one.
local function until_period(limit, ahead)
  return divide(limit.den, limit.mark + ahead, limit.num - 1, limit.num) - now
end

-- The time until so many units, and the part, have come back.
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

-- Brings a state forward to now.
local function advance(limit)
  if limit.kind == LEAK then
    -- After a clock that was put back the level stays as it is.
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
  -- A clock that was put back over the begin of a period does not begin that period twice.
  if limit.mark == number + 1 then number = limit.mark end
  local gone = math.max(0, number - limit.mark)
  if limit.kind ~= WINDOW then
    limit.used = math.max(0, limit.used - gone * limit.amount)
  elseif number ~= limit.mark then
    limit.used = 0
  end
  limit.mark = number
end

-- The limits as they were written.
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

-- The state that a limit continues: that of the same numbers, else the one in its place.
local function before(limit, at, old)
  if old[at] and same(old[at], limit) then return old[at] end
  for _, other in ipairs(old) do
    if same(other, limit) then return other end
  end
  return old[at]
end

-- Continues with other numbers: units that are used stay used, and come back at the new pace.
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
  -- A clock that was put back is noticed by the time that is written.
  changed = changed or (from ~= nil and (not same(from, limit) or from.mark > limit.mark))
  limit.used = math.min(limit.used + debt, MOST)
  granted = math.min(granted, math.max(0, limit.capacity - whole(limit)))
end
-- Fewer units than the cheapest request that waits costs would be lost.
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
-- 0 stands for no window.
ends = ends == MOST and 0 or math.max(1, ends)

if changed and expires > 0 then
  -- A state that has expired is one in which nothing is used. The second is for clocks that jump.
  local ms = string.format('%.0f', math.min(math.ceil(expires / 1000) + 1000, MOST))
  local state = write(limits)
  local done = redis.pcall('SET', KEYS[1], state, 'PX', ms)
  if done.err then
    -- An engine whose memory is full has no room for a new key. The state of a known key takes the place of its
    -- old one: after a first write, which needs no memory, the engine lets a script write on.
    if not text or not string.find(done.err, 'OOM', 1, true) then return done end
    redis.call('PEXPIRE', KEYS[1], ms)
    redis.call('SET', KEYS[1], state, 'PX', ms)
  end
elseif text and expires == 0 then
  redis.call('DEL', KEYS[1])
end
return { granted, math.min(wait, MOST), ends, unpack(left) }
