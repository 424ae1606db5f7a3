-- Records a caller, writes its changes, and returns the number of callers and the changes that the caller lacks.
--
-- KEYS:
--   callers  sorted set: instance by the time of its last call
--   record   hash: epoch, generation, bytes of all changes
--   changes  hash: name to "<time of the change> <JSON>"
--   order    sorted set: name by generation
--   ends     sorted set: name by the time at which the change is removed
-- Times are in milliseconds since the Unix epoch, by the clock of the engine.
--
-- ARGV: the instance, the epoch of a new record, the epoch and generation that the caller has seen, the limits
-- (age of callers in ms, age of tombstones in ms, number of changes, bytes of changes, number of changes per
-- answer, bytes of changes per answer), and five values per change: name, JSON, 1 for a removal (otherwise 0),
-- milliseconds since the change was made, milliseconds until it ends (0 for never).
--
-- Returns the number of callers, the epoch, the generation, 1 if the caller has to call again for more changes, a
-- verdict per change, and four values per returned change: generation, milliseconds since the change was made,
-- milliseconds until it ends (0 for never), JSON. A verdict is the reason of a rejection. It is empty if the
-- change was written, or if the record has a later change of this name, which the caller then gets.
local callers, record, changes, order, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local instance, fresh, epoch, known = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local recent, kept = tonumber(ARGV[5]), tonumber(ARGV[6])
local most, most_bytes = tonumber(ARGV[7]), tonumber(ARGV[8])
local answer_changes, answer_bytes = tonumber(ARGV[9]), tonumber(ARGV[10])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- Maximum number of ended changes that a call removes. It bounds the duration of a call.
local SWEEP = 64

-- A full engine refuses writes that need memory, but permits all writes of a script after the script's first write.
-- ZREMRANGEBYSCORE needs no memory, so it comes first. Callers and changes are bounded, and a ban must reach all
-- Envoys, so writing them to a full engine is acceptable.
redis.call('ZREMRANGEBYSCORE', callers, '-inf', now - recent)
-- One write per second and caller is enough, and reduces the work of replicas.
local seen = tonumber(redis.call('ZSCORE', callers, instance) or 0)
if now - seen >= 1000 or seen > now then
  redis.call('ZADD', callers, now, instance)
end
local envoys = redis.call('ZCOUNT', callers, now - recent, '+inf')

-- If the engine has evicted a part of the record, the record is deleted and starts again with a new epoch.
local current = redis.call('HGET', record, 'epoch')
if not current or redis.call('ZCARD', order) ~= redis.call('HLEN', changes) then
  redis.call('DEL', record, changes, order, ends)
  redis.call('HSET', record, 'epoch', fresh)
  current = fresh
elseif epoch == current and known > tonumber(redis.call('HGET', record, 'generation') or 0) then
  -- A replica without the latest changes has taken over. A new epoch prevents that their generations are used twice.
  redis.call('HSET', record, 'epoch', fresh)
  current = fresh
end

local function remove(name)
  local text = redis.call('HGET', changes, name)
  if text then redis.call('HINCRBY', record, 'bytes', -#text) end
  redis.call('HDEL', changes, name)
  redis.call('ZREM', order, name)
  redis.call('ZREM', ends, name)
end

for _, name in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, SWEEP)) do
  remove(name)
end

local function read(name)
  local found = redis.call('HGET', changes, name)
  if not found then return nil end
  local space = string.find(found, ' ', 1, true)
  return found, tonumber(string.sub(found, 1, space - 1)), string.sub(found, space + 1)
end

-- Writes a change. Returns the verdict.
local function write(name, text, is_end, age, ends_in)
  local made, goes = now - age, 0
  if is_end then goes = now + kept
  elseif ends_in > 0 then goes = now + ends_in end
  local old, old_made, old_text = read(name)
  if old then
    local number = tonumber(redis.call('ZSCORE', order, name) or 0)
    if epoch == current and number <= known then
      -- The caller has seen the stored change and replaces it deliberately, so the new change counts as later
      -- even if the clocks disagree.
      if made <= old_made then made = old_made + 1 end
    elseif old_made > made then
      return ''
    elseif old_text == text then
      -- An equal change that was made later. Only its time is updated, so that a change made in between does
      -- not replace it.
      redis.call('HSET', changes, name, string.format('%.0f ', made) .. text)
      return ''
    end
  end
  text = string.format('%.0f ', made) .. text
  local count = redis.call('HLEN', changes) + (old and 0 or 1)
  if count > most then
    return string.format('%d changes in the record; allowed: %d', count, most)
  end
  local bytes = tonumber(redis.call('HGET', record, 'bytes') or 0) + #text - (old and #old or 0)
  if bytes > most_bytes and not (old and #text <= #old) then
    return string.format('%d bytes of changes in the record; allowed: %d', bytes, most_bytes)
  end
  redis.call('HSET', record, 'bytes', bytes)
  redis.call('HSET', changes, name, text)
  redis.call('ZADD', order, redis.call('HINCRBY', record, 'generation', 1), name)
  if goes > 0 then
    redis.call('ZADD', ends, goes, name)
  else
    redis.call('ZREM', ends, name)
  end
  return ''
end

local verdicts = {}
for at = 11, #ARGV, 5 do
  local age, ends_in = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  verdicts[#verdicts + 1] = write(ARGV[at], ARGV[at + 1], ARGV[at + 2] == '1', age, ends_in)
end

local above = '-inf'
if epoch == current then above = '(' .. string.format('%.0f', known) end
local found, bytes, more = {}, 0, 0
local generation = redis.call('HGET', record, 'generation') or '0'
local names = redis.call('ZRANGEBYSCORE', order, above, '+inf', 'WITHSCORES', 'LIMIT', 0, answer_changes + 1)
for at = 1, #names, 2 do
  local _, made, text = read(names[at])
  bytes = bytes + #text
  if #found > 0 and (bytes > answer_bytes or #found >= answer_changes * 4) then
    more = 1
    break
  end
  generation = names[at + 1]
  local goes = tonumber(redis.call('ZSCORE', ends, names[at]) or 0)
  local parts = { generation, math.max(0, now - made), goes > 0 and math.max(1, goes - now) or 0, text }
  for part = 1, 4 do found[#found + 1] = parts[part] end
end
return { envoys, current, generation, more, verdicts, found }
