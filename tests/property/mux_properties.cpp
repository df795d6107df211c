// SPDX-License-Identifier: Apache-2.0
// Random work on two engines joined by a link that cuts and delays as it likes: every stream's bytes
// arrive once and in order, no side ever has to call the other faulty, and everything ends.
#include <gtest/gtest.h>
// After gtest, which it needs and does not include.
#include <rapidcheck/gtest.h>

#include <deque>
#include <map>

#include "wire/mux_engine.hpp"

namespace sandbox::property {
namespace {

using wire::MuxEngine;
using wire::StreamId;

// What the byte at `at` of this direction of this stream is: any loss, repeat or mix-up shows.
std::byte byte_of(StreamId stream, bool to_guest, std::size_t at)
{
    return static_cast<std::byte>((stream * 131 + (to_guest ? 17 : 0) + at * 7 + at / 253) & 0xFFU);
}

struct Counted {
    std::size_t written = 0;
    std::size_t read = 0;
    bool finished = false;
    bool known = false;  // to this side's engine
};

struct Side {
    Side(wire::MuxSide which, wire::MuxLimits limits) : engine(which, limits) {}
    MuxEngine engine;
    std::deque<std::byte> link;  // said, not arrived yet
    std::map<StreamId, Counted> sends;
    bool to_guest = false;
};

class MuxWorld {
public:
    explicit MuxWorld(wire::MuxLimits limits)
        : host_(wire::MuxSide::host, limits), guest_(wire::MuxSide::guest, limits)
    {
        host_.to_guest = true;
    }

    void step(unsigned choice, unsigned amount)
    {
        Side& side = choice % 2 == 0 ? host_ : guest_;
        Side& other = choice % 2 == 0 ? guest_ : host_;
        switch (choice / 2 % 7) {
        case 0: open(side); break;
        case 1: write(side, pick(side, amount), amount % 5000); break;
        case 2: speak(side, 1 + amount % 3000); break;
        case 3: arrive(side, other, 1 + amount % 4000); break;
        case 4: read(side, other, pick(side, amount), 1 + amount % 2000); break;
        case 5: finish(side, pick(side, amount)); break;
        default: speak(side, 1U << 20); break;
        }
    }

    // Everybody finishes, reads and closes, until nothing moves.
    void settle()
    {
        for (bool moved = true; moved;) {
            moved = false;
            for (Side* side : {&host_, &guest_}) {
                Side& other = side == &host_ ? guest_ : host_;
                for (const auto& [id, sent] : side->sends) {
                    read(*side, other, id, 1U << 20);
                    finish(*side, id);
                }
                speak(*side, 1U << 20);
                moved = moved || !side->link.empty();
                arrive(*side, other, 1U << 20);
            }
        }
        for (const auto& [id, sent] : host_.sends) {
            RC_ASSERT(guest_.sends[id].read == sent.written);
            RC_ASSERT(host_.engine.at_end(id));
        }
        for (const auto& [id, sent] : guest_.sends) RC_ASSERT(host_.sends[id].read == sent.written);
        for (Side* side : {&host_, &guest_})
            for (const auto& [id, sent] : side->sends) side->engine.close(id);
        for (int round = 0; round < 4; ++round) {
            for (Side* side : {&host_, &guest_}) {
                speak(*side, 1U << 20);
                arrive(*side, side == &host_ ? guest_ : host_, 1U << 20);
            }
        }
        RC_ASSERT(host_.engine.open_streams() == 0U);
        RC_ASSERT(guest_.engine.open_streams() == 0U);
    }

private:
    static StreamId pick(const Side& side, unsigned amount)
    {
        if (side.sends.empty()) return 0;
        auto at = side.sends.begin();
        std::advance(at, amount % side.sends.size());
        return at->first;
    }

    void open(Side& side)
    {
        if (side.sends.size() >= 6) return;
        const auto id = side.engine.open(5001, "p");
        RC_ASSERT(id.has_value());
        host_.sends[*id];
        guest_.sends[*id];
        side.sends[*id].known = true;
    }

    static void write(Side& side, StreamId id, std::size_t size)
    {
        if (id == 0) return;
        Counted& sent = side.sends[id];
        wire::ByteVector bytes(size);
        for (std::size_t i = 0; i < size; ++i)
            bytes[i] = byte_of(id, side.to_guest, sent.written + i);
        const std::size_t room = side.engine.room(id);
        const std::size_t took = side.engine.write(id, bytes);
        RC_ASSERT(took <= room);
        sent.written += took;
    }

    static void speak(Side& side, std::size_t most)
    {
        const auto bytes = side.engine.output();
        const std::size_t count = std::min(most, bytes.size());
        side.link.insert(side.link.end(), bytes.begin(),
                         bytes.begin() + static_cast<std::ptrdiff_t>(count));
        side.engine.sent(count);
    }

    static void arrive(Side& from, Side& to, std::size_t most)
    {
        const std::size_t count = std::min(most, from.link.size());
        const wire::ByteVector bytes(from.link.begin(),
                                     from.link.begin() + static_cast<std::ptrdiff_t>(count));
        from.link.erase(from.link.begin(), from.link.begin() + static_cast<std::ptrdiff_t>(count));
        RC_ASSERT(to.engine.feed(bytes).has_value());
        while (const auto event = to.engine.next_event())
            if (const auto* opened = std::get_if<wire::StreamOpened>(&*event)) {
                to.engine.accept(opened->stream);
                to.sends[opened->stream].known = true;
            }
    }

    static void read(Side& side, Side& other, StreamId id, std::size_t most)
    {
        if (id == 0) return;
        const auto bytes = side.engine.readable(id);
        const std::size_t count = std::min(most, bytes.size());
        Counted& mine = side.sends[id];
        for (std::size_t i = 0; i < count; ++i)
            RC_ASSERT(bytes[i] == byte_of(id, other.to_guest, mine.read + i));
        mine.read += count;
        RC_ASSERT(mine.read <= other.sends[id].written);
        side.engine.consume(id, count);
    }

    static void finish(Side& side, StreamId id)
    {
        if (id == 0 || !side.sends[id].known) return;
        if (std::exchange(side.sends[id].finished, true)) return;
        side.engine.finish(id);
    }

    Side host_;
    Side guest_;
};

}  // namespace

RC_GTEST_PROP(MuxProperties, EveryByteArrivesOnceAndInOrderWhateverTheInterleaving,
              (const std::vector<std::pair<unsigned, unsigned>>& steps))
{
    const auto window = *rc::gen::inRange<std::uint32_t>(1, 6000);
    const auto buffer = *rc::gen::inRange<std::size_t>(1, 6000);
    MuxWorld world({window, buffer});
    for (const auto& [choice, amount] : steps) world.step(choice, amount);
    world.settle();
}

}  // namespace sandbox::property
