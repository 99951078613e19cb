-- Wireshark dissector for INA frames (docs/protocol.md), UDP ports 7584-7647: a lane each.
--
--   wireshark -X lua_script:wire/wireshark/ina.lua capture.pcap
--   tshark -X lua_script:wire/wireshark/ina.lua -r capture.pcap -Y 'ina.type == 1 && ina.seq == 7'
--
-- or copy it to the folder "Personal Lua Plugins" of Help > About Wireshark > Folders.

local ina = Proto("ina", "In-Network Aggregation")

local HEADER_BYTES = 72
local VERSION = 2
local FIRST_PORT, LAST_PORT = 7584, 7647
local MAX_WORKERS = 64

local TYPES = {
  [1] = "GRAD", [2] = "PART", [3] = "RESULT", [4] = "QUERY", [5] = "POLL", [6] = "SENT",
  [7] = "NOTYET", [8] = "HAVE", [9] = "DEFER", [10] = "REMIND", [11] = "PARK", [12] = "PARKED",
  [13] = "STALE",
}
local DTYPES = {
  [1] = "int8", [2] = "int32", [3] = "int64", [4] = "float32", [5] = "float64",
  [6] = "bfloat16", [7] = "float16", [8] = "uint8", [9] = "bool",
}
local OPS = {
  [1] = "sum", [2] = "min", [3] = "max", [4] = "avg", [5] = "prod", [6] = "band", [7] = "bor",
  [8] = "bxor",
}
local ORIGINS = { [0] = "none", [1] = "switch", [2] = "fallback", [3] = "parker" }
local PHASES = { [0] = "none", [1] = "status", [2] = "bind", [3] = "again", [4] = "lost" }
local COLLECTIVES = {
  [1] = "allreduce", [2] = "barrier", [3] = "reduce", [4] = "reduce-scatter", [5] = "broadcast",
  [6] = "all-gather", [7] = "gather", [8] = "scatter", [9] = "all-to-all", [10] = "permute",
}

-- The types of payload elements that Wireshark can show, and their width in bytes. bfloat16 is the
-- upper half of a float32; float16 is shown by its bits.
local WIDTHS = {
  int8 = 1, int32 = 4, int64 = 8, float32 = 4, float64 = 8, bfloat16 = 2, float16 = 2,
  uint8 = 1, bool = 1,
}
local ACCUMULATORS = { int8 = "int32", uint8 = "int32", bfloat16 = "float32", float16 = "float32" }
local TYPE_PART, TYPE_PARK = 2, 11
local SHOWN_ELEMENTS = 16

local f = {
  magic = ProtoField.string("ina.magic", "Magic"),
  version = ProtoField.uint8("ina.version", "Version"),
  type = ProtoField.uint8("ina.type", "Type", base.DEC, TYPES),
  job = ProtoField.uint32("ina.job", "Job"),
  job_key = ProtoField.uint64("ina.job_key", "Job key", base.HEX),
  epoch = ProtoField.uint32("ina.epoch", "Epoch"),
  seq = ProtoField.uint32("ina.seq", "Sequence number (low 32 bits)"),
  bitmap = ProtoField.uint64("ina.bitmap", "Worker bitmap", base.HEX),
  workers = ProtoField.uint32("ina.bitmap.workers", "Workers in the bitmap"),
  operation_elements = ProtoField.uint64("ina.operation_elements", "Elements of the operation"),
  operation = ProtoField.uint32("ina.operation", "Operation"),
  elements = ProtoField.uint16("ina.elements", "Elements of the fragment"),
  dtype = ProtoField.uint8("ina.dtype", "Data type", base.DEC, DTYPES),
  op = ProtoField.uint8("ina.op", "Reduction", base.DEC, OPS),
  rank = ProtoField.uint8("ina.rank", "Rank"),
  priority = ProtoField.uint8("ina.priority", "Priority"),
  origin = ProtoField.uint8("ina.origin", "Origin", base.DEC, ORIGINS, 0x0f),
  phase = ProtoField.uint8("ina.phase", "Phase", base.DEC, PHASES, 0xf0),
  receiver = ProtoField.uint16("ina.receiver", "Receiver (1 + rank; 0: all)"),
  flags = ProtoField.uint16("ina.flags", "Flags", base.HEX),
  flag_overflow = ProtoField.bool("ina.flags.overflow", "Overflow", 16, nil, 0x0001),
  flag_ecn = ProtoField.bool("ina.flags.ecn", "Congestion experienced", 16, nil, 0x0002),
  flag_raw = ProtoField.bool("ina.flags.raw", "Raw contribution", 16, nil, 0x0004),
  flag_split = ProtoField.bool("ina.flags.split", "Put together from parts", 16, nil, 0x0008),
  flag_full = ProtoField.bool("ina.flags.full", "Window full", 16, nil, 0x0010),
  flag_bare = ProtoField.bool("ina.flags.bare", "Bare: mark, or header of a result", 16, nil, 0x0080),
  flag_prompt = ProtoField.bool("ina.flags.prompt", "Prompt: bare results must not wait", 16, nil, 0x0100),
  flag_quick = ProtoField.bool("ina.flags.quick", "Quick: the switch may answer", 16, nil, 0x0200),
  flag_again = ProtoField.bool("ina.flags.again", "Again: the answer to a question", 16, nil, 0x0400),
  lane = ProtoField.uint8("ina.lane", "Lane"),
  collective = ProtoField.uint8("ina.collective", "Collective", base.DEC, COLLECTIVES),
  instance = ProtoField.uint32("ina.instance", "Fallback instance"),
  crc = ProtoField.uint32("ina.crc32c", "CRC32C", base.HEX),
  crc_good = ProtoField.bool("ina.crc32c.good", "CRC32C is right"),
  tag = ProtoField.uint64("ina.tag", "Authentication tag", base.HEX),
  payload = ProtoField.bytes("ina.payload", "Payload"),
  element_int = ProtoField.int64("ina.element.int", "Element"),
  element_float = ProtoField.double("ina.element.float", "Element"),
  element_bits = ProtoField.uint16("ina.element.bits", "Element (bits)", base.HEX),
}
for _, field in pairs(f) do table.insert(ina.fields, field) end

local bad_crc = ProtoExpert.new("ina.crc32c.bad", "CRC32C does not match: receivers drop this",
  expert.group.CHECKSUM, expert.severity.ERROR)
local bad_version = ProtoExpert.new("ina.version.unknown", "Protocol version not known here",
  expert.group.UNDECODED, expert.severity.WARN)
local too_short = ProtoExpert.new("ina.truncated", "Shorter than its header",
  expert.group.MALFORMED, expert.severity.ERROR)
ina.experts = { bad_crc, bad_version, too_short }

-- The `bit` library yields signed numbers: unsigned() brings them back to 0..2^32-1.
local function unsigned(number) return number % 4294967296 end

local crc_table = {}
for byte = 0, 255 do
  local crc = byte
  for _ = 1, 8 do
    local odd = bit.band(crc, 1) == 1
    crc = bit.rshift(crc, 1)
    if odd then crc = bit.bxor(crc, 0x82f63b78) end
  end
  crc_table[byte] = crc
end

-- CRC32C over header and payload, the CRC's own four bytes counted as 0.
local function crc32c(buffer)
  local bytes = buffer:bytes()
  local crc = 0xffffffff
  for at = 0, bytes:len() - 1 do
    local byte = (at >= 60 and at < 64) and 0 or bytes:get_index(at)
    crc = bit.bxor(bit.rshift(crc, 8), crc_table[bit.band(bit.bxor(crc, byte), 0xff)])
  end
  return unsigned(bit.bnot(crc))
end

local function count_workers(range)
  local low, high = range(0, 4):le_uint(), range(4, 4):le_uint()
  local count = 0
  for i = 0, MAX_WORKERS / 2 - 1 do
    count = count + bit.band(bit.rshift(low, i), 1) + bit.band(bit.rshift(high, i), 1)
  end
  return count
end

local function element_type(message_type, dtype)
  local name = DTYPES[dtype]
  if message_type == TYPE_PART or message_type == TYPE_PARK then
    return ACCUMULATORS[name] or name
  end
  return name
end

local function bfloat16(range)
  local wide = ByteArray.new("0000")
  wide:append(range:bytes())
  return wide:tvb("bfloat16"):range(0, 4):le_float()
end

local function add_element(tree, name, range)
  if name == "int8" then tree:add(f.element_int, range, Int64(range:le_int()))
  elseif name == "uint8" or name == "bool" then tree:add(f.element_int, range, Int64(range:uint()))
  elseif name == "int32" then tree:add(f.element_int, range, Int64(range:le_int()))
  elseif name == "int64" then tree:add(f.element_int, range, range:le_int64())
  elseif name == "float16" then tree:add_le(f.element_bits, range)
  elseif name == "bfloat16" then tree:add(f.element_float, range, bfloat16(range))
  else tree:add(f.element_float, range, range:le_float()) end
end

local function add_payload(tree, buffer, message_type, dtype)
  local length = buffer:len() - HEADER_BYTES
  if length == 0 then return end
  local payload = buffer(HEADER_BYTES, length)
  local subtree = tree:add(f.payload, payload)
  local name = element_type(message_type, dtype)
  if name == nil then return end
  local width = WIDTHS[name]
  local count = math.floor(length / width)
  subtree:append_text(string.format(" (%d x %s)", count, name))
  for i = 0, math.min(count, SHOWN_ELEMENTS) - 1 do
    add_element(subtree, name, payload(i * width, width))
  end
end

local function add_flags(tree, range)
  local flags = tree:add_le(f.flags, range)
  flags:add_le(f.flag_overflow, range)
  flags:add_le(f.flag_ecn, range)
  flags:add_le(f.flag_raw, range)
  flags:add_le(f.flag_split, range)
  flags:add_le(f.flag_full, range)
  flags:add_le(f.flag_bare, range)
  flags:add_le(f.flag_prompt, range)
  flags:add_le(f.flag_quick, range)
  flags:add_le(f.flag_again, range)
end

local function add_crc(tree, buffer)
  local item = tree:add_le(f.crc, buffer(60, 4))
  -- A capture cut short by its snap length says nothing about the CRC.
  if buffer:reported_len() ~= buffer:len() then return end
  local good = crc32c(buffer) == buffer(60, 4):le_uint()
  item:add(f.crc_good, buffer(60, 4), good):set_generated()
  if not good then item:add_proto_expert_info(bad_crc) end
end

local function is_ina(buffer)
  return buffer:len() >= 3 and buffer(0, 2):string() == "IN"
end

function ina.dissector(buffer, pinfo, root)
  if not is_ina(buffer) then return 0 end
  pinfo.cols.protocol = "INA"
  local tree = root:add(ina, buffer())
  tree:add(f.magic, buffer(0, 2))
  local version = tree:add(f.version, buffer(2, 1))
  if buffer(2, 1):uint() ~= VERSION then
    version:add_proto_expert_info(bad_version)
    return buffer:len()
  end
  if buffer:len() < HEADER_BYTES then
    tree:add_proto_expert_info(too_short)
    return buffer:len()
  end

  local message_type, dtype = buffer(3, 1):uint(), buffer(46, 1):uint()
  tree:add(f.type, buffer(3, 1))
  tree:add_le(f.job, buffer(4, 4))
  tree:add_le(f.job_key, buffer(8, 8))
  tree:add_le(f.epoch, buffer(16, 4))
  tree:add_le(f.seq, buffer(20, 4))
  local bitmap = tree:add_le(f.bitmap, buffer(24, 8))
  bitmap:add(f.workers, buffer(24, 8), count_workers(buffer(24, 8))):set_generated()
  tree:add_le(f.operation_elements, buffer(32, 8))
  tree:add_le(f.operation, buffer(40, 4))
  tree:add_le(f.elements, buffer(44, 2))
  tree:add(f.dtype, buffer(46, 1))
  tree:add(f.op, buffer(47, 1))
  tree:add(f.rank, buffer(48, 1))
  tree:add(f.priority, buffer(49, 1))
  tree:add(f.origin, buffer(50, 1))
  tree:add(f.phase, buffer(50, 1))
  -- Its upper bits are those of the flags.
  tree:add(f.receiver, buffer(51, 3),
           buffer(51, 1):uint() + math.floor(buffer(52, 2):le_uint() / 2048) * 256)
  add_flags(tree, buffer(52, 2))
  tree:add(f.lane, buffer(54, 1))
  tree:add(f.collective, buffer(55, 1))
  tree:add_le(f.instance, buffer(56, 4))
  add_crc(tree, buffer)
  tree:add_le(f.tag, buffer(64, 8))
  add_payload(tree, buffer, message_type, dtype)

  local summary = string.format("%s job %d epoch %d seq %d rank %d, operation %d",
    TYPES[message_type] or ("type " .. message_type), buffer(4, 4):le_uint(),
    buffer(16, 4):le_uint(), buffer(20, 4):le_uint(), buffer(48, 1):uint(),
    buffer(40, 4):le_uint())
  pinfo.cols.info = summary
  tree:append_text(", " .. summary)
  return buffer:len()
end

local udp_ports = DissectorTable.get("udp.port")
for port = FIRST_PORT, LAST_PORT do udp_ports:add(port, ina) end
