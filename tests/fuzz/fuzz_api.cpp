// SPDX-License-Identifier: Apache-2.0
#include "control/calls.hpp"
#include "control/frames.hpp"
#include "control/http.hpp"
#include "fuzz.hpp"

// Whatever a client sends: cut anywhere, it is read the same, refused with a status of its own, or
// becomes a call; and bytes of a stream become frames or end it.
namespace sandbox::fuzz {

namespace {

struct Reading {
    int status = 0;  // of the refusal
    std::string method;
    std::string path;
    std::string body;
    bool operator==(const Reading&) const = default;
};

Reading read_request(std::string_view input, std::size_t step)
{
    control::RequestReader reader;
    std::string held;
    bool limited = false;
    while (reader.stage() != control::RequestReader::Stage::done) {
        const auto taken = reader.feed(held);
        if (!taken) {
            HOLDS(taken.error().status >= 400 && taken.error().status < 600);
            return {.status = taken.error().status};
        }
        HOLDS(*taken <= held.size());
        held.erase(0, *taken);
        if (reader.stage() != control::RequestReader::Stage::header && !limited) {
            limited = true;
            const auto route = control::find_route(reader.request());
            reader.limit_body(route ? (*route)->most_body : control::kMostBodyBytes);
        }
        if (*taken > 0) continue;
        if (input.empty()) return {};
        held += input.substr(0, step);
        input.remove_prefix(std::min(step, input.size()));
    }
    const control::HttpRequest request = reader.take();
    const auto route = control::find_route(request);
    if (!route) {
        HOLDS(route.error().status == 404 || route.error().status == 405);
    } else {
        const auto call = control::decode_call(**route, request);
        if (!call) HOLDS(call.error().status >= 400 && call.error().status < 600);
        if (call) HOLDS(call->operation == (*route)->operation);
    }
    return {0, request.method, request.path, request.body};
}

void cut_frames(std::string_view input, std::size_t step)
{
    control::FrameCutter cutter;
    std::size_t payloads = 0;
    for (std::size_t at = 0; at < input.size(); at += step) {
        cutter.feed(input.substr(at, step));
        while (true) {
            const auto frame = cutter.next();
            if (!frame) return;
            if (!*frame) break;
            payloads += (*frame)->payload.size() + control::kFrameHeader;
            if (const auto steer = control::decode_steer(**frame)) {
                HOLDS(control::encode_steer(*steer) ==
                      control::encode_frame((*frame)->type, (*frame)->payload));
            }
        }
        HOLDS(payloads + cutter.held() == std::min(at + step, input.size()));
    }
}

}  // namespace

FUZZ_TARGET(api)
{
    const Reading whole = read_request(input, input.size() + 1);
    HOLDS(read_request(input, 7) == whole || whole.status != 0);
    cut_frames(input, 3);
    if (const auto plain = control::percent_decode(input)) {
        HOLDS(control::percent_decode(control::percent_encode(*plain)) == *plain ||
              plain->find('\0') != std::string::npos);
    }
}

}  // namespace sandbox::fuzz
