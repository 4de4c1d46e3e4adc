// Parses the JSON header as a stream of events: nothing is built for what does not belong there, so nesting depth and
// stray content cost no memory, and duplicate names are seen (a document tree would keep the last one silently).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/safetensors.hpp"
#include "raggedmla/error.hpp"

namespace raggedmla::io {
namespace {

using json = nlohmann::json;

/// `{"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, "__metadata__": {"key": "text"}}`
class HeaderEvents final : public nlohmann::json_sax<json> {
 public:
  HeaderEvents(const std::string& file, SafetensorsHeader& header) : file_(file), header_(header) {}

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::outside: place_ = Place::file; return true;
      case Place::metadata_start: place_ = Place::metadata; return true;
      case Place::tensor_start:
        place_ = Place::tensor;
        fields_ = {};
        return true;
      default: unexpected("an object");
    }
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      for (const Field field : {Field::dtype, Field::shape, Field::data_offsets}) {
        if (!fields_[index(field)]) fail(fmt::format("has no {}", field_name(field)));
      }
    }
    place_ = place_ == Place::file ? Place::outside : Place::file;
    return true;
  }

  bool key(string_t& text) override {
    if (place_ == Place::file) {
      name_ = text;
      if (text == "__metadata__") {
        if (metadata_seen_) fail("stands twice in the header");
        metadata_seen_ = true;
        place_ = Place::metadata_start;
      } else {
        if (!header_.tensors.try_emplace(text).second) fail("stands twice in the header");
        place_ = Place::tensor_start;
      }
    } else if (place_ == Place::metadata) {
      if (header_.metadata.contains(text)) fail(fmt::format("holds the key '{}' twice", text));
      metadata_key_ = text;
    } else {
      field_ = text == "dtype" ? Field::dtype : text == "shape" ? Field::shape : Field::data_offsets;
      if (text != field_name(field_)) {
        fail(fmt::format("has the field '{}', expected dtype, shape and data_offsets", text));
      }
      if (fields_[index(field_)]) fail(fmt::format("has {} twice", text));
      fields_[index(field_)] = true;
      place_ = field_ == Field::dtype ? Place::dtype : Place::array_start;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::array_start) unexpected("an array");
    place_ = Place::array;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    TensorEntry& tensor = header_.tensors.find(name_)->second;
    if (field_ == Field::shape) {
      tensor.shape = numbers_;
    } else {
      if (numbers_.size() != 2) fail(fmt::format("has {} data_offsets, expected [begin, end]", numbers_.size()));
      tensor.begin = numbers_[0];
      tensor.end = numbers_[1];
    }
    place_ = Place::tensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::array) unexpected("a number");
    // No tensor has that many dimensions; without a bound a hostile header could hold millions.
    if (numbers_.size() >= 64) fail(fmt::format("has more than 64 numbers in {}", field_name(field_)));
    numbers_.push_back(value);
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::metadata) {
      header_.metadata.emplace(metadata_key_, text);
    } else if (place_ == Place::dtype) {
      header_.tensors.find(name_)->second.dtype = text;
      place_ = Place::tensor;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { unexpected(fmt::format("the number {}", value)); }
  bool number_float(number_float_t, const string_t& text) override { unexpected("the number " + text); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw Error(fmt::format("{}: the header is not valid JSON (byte {} of it)", file_, position));
  }

 private:
  enum class Place { outside, file, metadata_start, metadata, tensor_start, tensor, dtype, array_start, array };
  enum class Field { dtype, shape, data_offsets };
  static constexpr std::size_t index(Field field) { return static_cast<std::size_t>(field); }
  static constexpr const char* field_name(Field field) {
    return field == Field::dtype ? "dtype" : field == Field::shape ? "shape" : "data_offsets";
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(fmt::format("{}: tensor '{}' {}", file_, name_, message));
  }

  [[noreturn]] void unexpected(const std::string& what) const {
    switch (place_) {
      case Place::outside:
      case Place::file: throw Error(fmt::format("{}: the header is {}, expected an object", file_, what));
      case Place::metadata_start:
      case Place::metadata:
        throw Error(fmt::format("{}: __metadata__ holds {}, expected an object of strings", file_, what));
      case Place::tensor_start: fail(fmt::format("is described by {}, expected an object", what));
      case Place::dtype: fail(fmt::format("has {} for dtype, expected a string", what));
      default: fail(fmt::format("has {} in {}, expected an array of whole numbers >= 0", what, field_name(field_)));
    }
  }

  const std::string& file_;
  SafetensorsHeader& header_;
  Place place_ = Place::outside;
  std::string name_, metadata_key_;
  bool metadata_seen_ = false;
  Field field_ = Field::dtype;
  std::array<bool, 3> fields_{};
  std::vector<std::uint64_t> numbers_;
};

struct TypeName {
  DataType type;
  const char* name;
};
constexpr TypeName type_names[] = {{DataType::f32, "F32"}, {DataType::bf16, "BF16"}, {DataType::u8, "U8"},
                                   {DataType::i32, "I32"}, {DataType::i64, "I64"},   {DataType::boolean, "BOOL"}};

}  // namespace

const char* safetensors_name(DataType type) {
  for (const TypeName& candidate : type_names) {
    if (candidate.type == type) return candidate.name;
  }
  return "?";
}

std::optional<DataType> type_from_safetensors(std::string_view name) {
  for (const TypeName& candidate : type_names) {
    if (name == candidate.name) return candidate.type;
  }
  return std::nullopt;
}

namespace {

/// Bytes that type and shape need, or nothing when they do not fit 63 bits.
std::optional<std::uint64_t> bytes_needed(DataType type, std::span<const std::uint64_t> shape) {
  constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
  // An empty tensor's other dimensions must be addressable too: strides are made from them.
  std::uint64_t bytes = element_bytes(type);
  bool empty = false;
  for (const std::uint64_t size : shape) {
    empty = empty || size == 0;
    if (size > limit / bytes) return std::nullopt;
    bytes *= std::max<std::uint64_t>(size, 1);
  }
  return empty ? 0 : bytes;
}

void check_tensor(const std::string& name, const TensorEntry& tensor, std::uint64_t data_bytes,
                  const std::string& file) {
  const auto fail = [&](const std::string& message) {
    throw Error(fmt::format("{}: tensor '{}' {}", file, name, message));
  };
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    fail(fmt::format("lies at bytes [{}, {}) of the data, expected an ascending range within the file's {} data bytes",
                     tensor.begin, tensor.end, data_bytes));
  }
  const std::optional<DataType> type = type_from_safetensors(tensor.dtype);
  if (!type) return;  // unsupported: only an error for who uses it
  const std::optional<std::uint64_t> needed = bytes_needed(*type, tensor.shape);
  if (!needed) fail(fmt::format("has shape [{}], more elements than can be addressed", fmt::join(tensor.shape, ", ")));
  if (*needed != tensor.end - tensor.begin) {
    fail(fmt::format("has {} bytes, expected {} for {} [{}]", tensor.end - tensor.begin, *needed, tensor.dtype,
                     fmt::join(tensor.shape, ", ")));
  }
}

/// The tensors cover the data exactly.
void check_coverage(const SafetensorsHeader& header, std::uint64_t data_bytes, const std::string& file) {
  struct Range {
    std::uint64_t begin, end;
    const std::string* name;
  };
  std::vector<Range> ranges;
  ranges.reserve(header.tensors.size());
  for (const auto& [name, tensor] : header.tensors) ranges.push_back({tensor.begin, tensor.end, &name});
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  std::uint64_t covered = 0;
  for (const Range& range : ranges) {
    if (range.begin != covered) {
      throw Error(fmt::format("{}: tensor '{}' starts at byte {} of the data, expected {} ({})", file, *range.name,
                              range.begin, covered,
                              range.begin < covered ? "it overlaps the one before" : "a gap lies before it"));
    }
    covered = range.end;
  }
  if (covered != data_bytes) {
    throw Error(fmt::format("{}: the tensors end at byte {} of the data, expected {} (the end of the file)", file,
                            covered, data_bytes));
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes, const std::string& file) {
  SafetensorsHeader header;
  HeaderEvents events(file, header);
  json::sax_parse(text.begin(), text.end(), &events);
  for (const auto& [name, tensor] : header.tensors) check_tensor(name, tensor, data_bytes, file);
  check_coverage(header, data_bytes, file);
  return header;
}

}  // namespace raggedmla::io
