// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "control/frames.hpp"
#include "control/http.hpp"
#include "control/loop.hpp"
#include "control/server.hpp"
#include "control/stream.hpp"

// Private to the server: one accepted socket. One thread, the loop's; nothing here blocks.
namespace sandbox::control {

class Connection;

// What a connection asks of the server it belongs to.
class Host {
public:
    virtual ~Host() = default;
    virtual Loop& loop() = 0;
    virtual const ServerParts& parts() = 0;
    virtual Counters& counters() = 0;
    virtual bool draining() const = 0;
    // Now, later (resume() of the connection is called) or never.
    enum class Slot { free, wait, refused };
    virtual Slot take_slot(Connection& connection, Duration duration) = 0;
    virtual void end_slot(const Connection& connection, Duration duration) = 0;
    // Takes a worker that nobody waits for any more; `end` is called when it has been reaped.
    virtual void reap(sys::Pidfd process, std::function<void()> end) = 0;
    virtual void forget(Connection& connection) = 0;
};

// From accept to close: one request after the other, or one that became a stream. Shared, because
// handlers outlive a close; each holds a weak reference.
class Connection : public std::enable_shared_from_this<Connection> {
public:
    Connection(Host& host, std::unique_ptr<Loop::Watch> socket, sys::PeerCredentials peer);
    ~Connection();

    void begin();
    void resume();  // a slot is free
    void close();   // ends what it waits for; quick calls at work go on without it
    const sys::PeerCredentials& peer() const noexcept { return peer_; }
    // Nothing is at work for it: it may be closed when room is needed.
    bool is_idle() const noexcept { return phase_ == Phase::request; }
    bool is_queued() const noexcept { return phase_ == Phase::queued; }

private:
    // request: reads one; queued: waits for a worker; working: has one; answering: writes;
    // streaming: the socket is the stream's.
    enum class Phase { request, queued, working, answering, streaming, closed };

    void want_more();
    void on_readable();
    void on_end_of_input();
    void process();
    bool take_header();
    void dispatch();
    void start();
    void start_work(Worker worker);
    void read_channel();
    bool take_frame(Frame frame);
    void on_worker_done();
    void upgrade(Worker worker);
    void refuse(int status, const Error& error, Persistence persistence);
    void respond(int status, std::string_view type, std::string_view body, Persistence persistence);
    void flush();
    void on_flushed();
    void next_request();
    void set_deadline(Millis span, int status, const char* why);
    void note(int status, std::string_view body);
    Persistence persistence() const;

    Host& host_;
    std::unique_ptr<Loop::Watch> socket_;
    std::unique_ptr<Loop::Timer> timer_;
    sys::PeerCredentials peer_;
    Phase phase_ = Phase::request;
    bool half_closed_ = false;
    bool close_after_ = false;
    bool header_seen_ = false;

    std::string in_;
    std::string out_;
    std::size_t sent_ = 0;
    RequestReader reader_;
    HttpRequest request_;
    const Route* route_ = nullptr;
    std::optional<Call> call_;
    std::chrono::steady_clock::time_point began_;

    // The worker of the call.
    std::optional<sys::Pidfd> process_;
    std::unique_ptr<Loop::Watch> channel_;
    FrameCutter cutter_{kMostFrameBytes};
    std::optional<Head> head_;
    std::string body_;
    std::unique_ptr<Stream> stream_;
};

}  // namespace sandbox::control
