-- Notes a caller, writes its changes, and answers with the number of callers and the changes it does not know.
--
-- KEYS: callers (a sorted set by milliseconds), record (a hash: epoch, generation, bytes), changes (a hash:
-- the name of each, and the millisecond at which it was made with its JSON), order (a sorted set of names by
-- generation), ends (a sorted set of names by the milliseconds at which they go).
-- ARGV: the instance, an epoch for a new record, the epoch and the generation that the caller knows, the
-- bounds (callers' milliseconds, tombstones' milliseconds, changes, bytes of them, changes and bytes in an
-- answer), and for each change its name, its JSON, 1 if it is an end, the milliseconds since it was made, and
-- those until it ends or 0.
-- Answers with the callers, the epoch, the generation, whether there is more, the verdict on each change
-- (the reason for which it was refused; empty where it was written, or where the caller gets a later one), and
-- the changes: generation, milliseconds since it was made and until it ends, and JSON in turn.
local callers, record, changes, order, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local instance, fresh, epoch, known = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local recent, kept = tonumber(ARGV[5]), tonumber(ARGV[6])
local most, most_bytes = tonumber(ARGV[7]), tonumber(ARGV[8])
local answer_changes, answer_bytes = tonumber(ARGV[9]), tonumber(ARGV[10])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- Ended changes that one call removes, so that none takes long.
local SWEEP = 64

-- An engine whose memory is full refuses to write, but lets a script write on after a first write that needs no
-- memory. Callers and changes have bounds, so they are written all the same: a ban must get through.
redis.call('ZREMRANGEBYSCORE', callers, '-inf', now - recent)
-- Once a second for each caller is enough, and spares the replicas.
local seen = tonumber(redis.call('ZSCORE', callers, instance) or 0)
if now - seen >= 1000 or seen > now then
  redis.call('ZADD', callers, now, instance)
end
local envoys = redis.call('ZCOUNT', callers, now - recent, '+inf')

-- A record of which the engine has dropped a part is begun anew, in another epoch.
local current = redis.call('HGET', record, 'epoch')
if not current or redis.call('ZCARD', order) ~= redis.call('HLEN', changes) then
  redis.call('DEL', record, changes, order, ends)
  redis.call('HSET', record, 'epoch', fresh)
  current = fresh
elseif epoch == current and known > tonumber(redis.call('HGET', record, 'generation') or 0) then
  -- A replica took over that had not got the newest changes; their numbers must not be given twice.
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

-- Writes a change; the reason if it is refused.
local function write(name, text, is_end, age, ends_in)
  local made, goes = now - age, 0
  if is_end then goes = now + kept
  elseif ends_in > 0 then goes = now + ends_in end
  local old, old_made, old_text = read(name)
  if old then
    local number = tonumber(redis.call('ZSCORE', order, name) or 0)
    if epoch == current and number <= known then
      -- The caller knew the other one, so this one follows it, whatever the clocks say.
      if made <= old_made then made = old_made + 1 end
    elseif old_made > made then
      return ''
    elseif old_text == text then
      -- Told again, but made later than the one that is known: others must not come in between.
      redis.call('HSET', changes, name, string.format('%.0f ', made) .. text)
      return ''
    end
  end
  text = string.format('%.0f ', made) .. text
  local count = redis.call('HLEN', changes) + (old and 0 or 1)
  if count > most then
    return string.format('%d changes would be kept; allowed: %d', count, most)
  end
  local bytes = tonumber(redis.call('HGET', record, 'bytes') or 0) + #text - (old and #old or 0)
  if bytes > most_bytes and not (old and #text <= #old) then
    return string.format('%d bytes of changes would be kept; allowed: %d', bytes, most_bytes)
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
