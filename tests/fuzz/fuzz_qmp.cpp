// SPDX-License-Identifier: Apache-2.0
#include "driver/microvm/qmp.hpp"
#include "fuzz.hpp"

// What a VMM says on its control socket: the same messages however the bytes are cut, bounded words,
// and a failure that is final.
namespace sandbox::fuzz {

FUZZ_TARGET(qmp)
{
    using namespace driver::microvm;
    QmpReader whole;
    std::vector<QmpMessage> messages;
    const bool good = whole.feed(input, messages).has_value();
    for (const QmpMessage& message : messages) {
        if (const auto* event = std::get_if<QmpEvent>(&message)) {
            HOLDS(!event->name.empty());
            HOLDS(event->name.size() <= kLongestQmpLine);
        }
    }
    QmpReader cut;
    std::vector<QmpMessage> again;
    bool still_good = true;
    for (const char byte : input) {
        if (!cut.feed({&byte, 1}, again)) {
            still_good = false;
            break;
        }
    }
    HOLDS(still_good == good);
    HOLDS(again == messages);
    if (!good) HOLDS(!whole.feed("{\"return\": {}}\n", messages));
}

}  // namespace sandbox::fuzz
