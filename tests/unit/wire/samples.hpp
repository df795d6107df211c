// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "wire/wire.hpp"

namespace sandbox::wire::test {

// One message with every field set to a value that shows its place and width.
struct Sample {
    std::string name;  // golden file: <port>/<name>.hex
    Port port;
    Direction direction;
    Message message;
};

std::vector<Sample> samples();

// "5001", "init", "bootstrap", "helper"
std::string folder_of(Port port);

// Frame, packet or record, as the port carries it. Fails the test when it does not encode.
ByteVector encode_any(const Message& message);

// What a receiver makes of the bytes of one whole stream, packet or record holding one message.
Decoded<Message> decode_any(Port port, Direction direction, Stage stage,
                            std::span<const std::byte> bytes);

// The stage at which a message of this type is legal.
Stage stage_of(std::uint8_t type);

std::uint8_t type_of(const Message& message);

ByteVector from_hex(std::string_view text);
std::string to_hex(std::span<const std::byte> bytes);

// A header and as many zero bytes as asked, for frames that must not decode.
ByteVector raw_frame(std::uint8_t type, std::uint32_t length, std::size_t payload);

}  // namespace sandbox::wire::test
