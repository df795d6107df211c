// SPDX-License-Identifier: Apache-2.0
#include "control/connection.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "canon/json.hpp"
#include "control/codec.hpp"

namespace sandbox::control {

namespace {

// One read; larger would only hold more for a slow client.
constexpr std::size_t kReceiveBytes = 64U << 10;
constexpr std::size_t kMostUnsent = 256U << 10;  // to a client; then a worker's lines wait
constexpr int kInfo = 6;    // syslog(3) priorities
constexpr int kComplaint = 5;

std::string error_body(const Error& error)
{
    // Messages may quote bytes that are no UTF-8: replaced, so that an error can always be sent.
    return to_json(error).dump(2, ' ', false, canon::Json::error_handler_t::replace) + "\n";
}

bool hung_up(int fd)
{
    pollfd wait{fd, 0, 0};
    // No events asked for: poll(2) tells of a hang-up in any case.
    return poll(&wait, 1, 0) == 1 && (wait.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace

Connection::Connection(Host& host, std::unique_ptr<Loop::Watch> socket, sys::PeerCredentials peer)
    : host_(host), socket_(std::move(socket)), timer_(host.loop().timer()), peer_(peer),
      began_(std::chrono::steady_clock::now())
{
}

Connection::~Connection() = default;

void Connection::begin()
{
    // From the first moment: a client that connects and says nothing holds a place.
    set_deadline(host_.parts().limits.idle_time, 0, "idle");
    want_more();
}

// Status 0: nobody is told.
void Connection::set_deadline(Millis span, int status, const char* why)
{
    timer_->after(span, [this, status, why] {
        // Counted by reason for /metrics.
        ++host_.counters().refused[why];
        if (status == 0) return close();
        refuse(status, Error(Code::deadline_exceeded, why), Persistence::close);
    });
}

void Connection::want_more()
{
    // Behind a whole request there is nothing to read before its answer but the client's end.
    const bool open = phase_ != Phase::closed && phase_ != Phase::streaming && !half_closed_;
    // A bound for what a client may send ahead.
    if (!open || socket_->waits_readable() || in_.size() >= kMostHeaderBytes) return;
    socket_->when_readable([self = weak_from_this()] {
        if (const auto alive = self.lock()) alive->on_readable();
    });
}

void Connection::on_readable()
{
    if (phase_ == Phase::closed || phase_ == Phase::streaming) return;
    std::string chunk(kReceiveBytes, '\0');
    const ssize_t count = recv(socket_->fd(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return want_more();
    if (count < 0) return close();
    if (count == 0) return on_end_of_input();
    in_.append(chunk, 0, static_cast<std::size_t>(count));
    if (phase_ == Phase::request) process();
    want_more();
}

void Connection::on_end_of_input()
{
    half_closed_ = true;
    // Nobody would read an answer; a request that was not whole never will be.
    if (phase_ == Phase::request || hung_up(socket_->fd())) return close();
    // Half-closed: it has said all it had to say and still wants its answer.
}

void Connection::process()
{
    while (phase_ == Phase::request && !in_.empty()) {
        // A loop, because one read may hold the end of one request and the beginning of the next.
        if (!reader_.started()) {
            // From the first byte of the header: slow clients are cut off, whatever they send.
            set_deadline(host_.parts().limits.header_time, 408, "header too slow");
        }
        const auto taken = reader_.feed(in_);
        if (!taken) {
            ++host_.counters().refused["malformed"];
            return refuse(taken.error().status,
                          Error(Code::invalid_argument, taken.error().message), Persistence::close);
        }
        in_.erase(0, *taken);
        // Judged by the header alone: a body that is not wanted is never read.
        if (reader_.stage() != RequestReader::Stage::header && !header_seen_ && !take_header()) {
            return;
        }
        if (reader_.stage() == RequestReader::Stage::done) return dispatch();
        if (*taken == 0) return;
    }
}

bool Connection::take_header()
{
    header_seen_ = true;
    const auto route = find_route(reader_.request());
    if (!route) {
        request_ = reader_.request();
        // What body there is was not looked at: this connection cannot go on.
        refuse(route.error().status, route.error().error, Persistence::close);
        return false;
    }
    route_ = *route;
    reader_.limit_body(route_->most_body);
    set_deadline(host_.parts().limits.body_time, 408, "body too slow");
    // RFC 9110, 10.1.1: the client waits for this before it sends its body.
    if (reader_.request().expects_continue) {
        out_ += "HTTP/1.1 100 Continue\r\n\r\n";
        flush();
    }
    return phase_ == Phase::request;
}

void Connection::dispatch()
{
    timer_->cancel();
    began_ = std::chrono::steady_clock::now();
    request_ = reader_.take();
    auto call = decode_call(*route_, request_);
    if (!call) return refuse(call.error().status, call.error().error, persistence());
    call_ = std::move(*call);
    // In this process: it is the first question of every client, and needs nothing of the host.
    if (call_->operation == Operation::version) {
        return respond(200, kJsonType, host_.parts().version, persistence());
    }
    switch (host_.take_slot(*this, call_->duration)) {
    case Host::Slot::free: return start();
    // The client keeps its place and its connection; the timer does not run meanwhile.
    case Host::Slot::wait: phase_ = Phase::queued; return;
    case Host::Slot::refused:
        return refuse(503, Error(Code::resource_exhausted, "too many calls are at work: try later"),
                      persistence());
    }
}

void Connection::resume()
{
    if (phase_ == Phase::queued) start();
}

void Connection::start()
{
    phase_ = Phase::working;
    const ServerParts& parts = host_.parts();
    auto worker = [&] {
        if (call_->operation != Operation::metrics) return start_worker(*call_, parts.work);
        // A copy: the worker is a fork, and counts of its own would be lost.
        const Counters counters = host_.counters();
        return start_worker(*call_, [&parts, counters](const Call&, AnswerSink& sink) {
            const auto text = parts.metrics(counters);
            if (!text) return answer_fault(fault_of(text.error()), sink);
            sink.begin(200, kMetricsType, AnswerSink::Form::whole);
            sink.body(*text);
        });
    }();
    if (!worker) {
        host_.end_slot(*this, call_->duration);
        return refuse(503, worker.error(), persistence());
    }
    if (call_->upgraded) return upgrade(std::move(*worker));
    start_work(std::move(*worker));
}

void Connection::start_work(Worker worker)
{
    process_.emplace(std::move(worker.process));
    auto channel = host_.loop().watch(std::move(worker.channel));
    // Nobody can be heard: as if it had died.
    if (!channel) return on_worker_done();
    channel_ = std::move(*channel);
    head_.reset();
    body_.clear();
    cutter_ = FrameCutter(kMostFrameBytes);
    read_channel();
    want_more();
}

void Connection::read_channel()
{
    while (phase_ == Phase::working && channel_) {
        // A client that does not read holds back its worker, by the channel's own pipe.
        if (out_.size() - sent_ >= kMostUnsent) return;  // flush() goes on
        std::string chunk(kReceiveBytes, '\0');
        const ssize_t count = read(channel_->fd(), chunk.data(), chunk.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) {
            if (channel_->waits_readable()) return;
            return channel_->when_readable([self = weak_from_this()] {
                if (const auto alive = self.lock()) alive->read_channel();
            });
        }
        if (count <= 0) return on_worker_done();
        cutter_.feed(std::string_view(chunk).substr(0, static_cast<std::size_t>(count)));
        for (auto frame = cutter_.next(); frame && *frame; frame = cutter_.next()) {
            // A worker that breaks the protocol is as good as a dead one.
            if (!take_frame(std::move(**frame))) return on_worker_done();
        }
        flush();
    }
}

bool Connection::take_frame(Frame frame)
{
    if (frame.type == FrameType::head) {
        auto head = decode_head(frame.payload);
        if (!head || head_) return false;
        head_ = std::move(*head);
        if (head_->form == AnswerSink::Form::lines) {
            out_ += render_chunked_header(head_->status, head_->type);
        }
        return true;
    }
    if (frame.type != FrameType::body || !head_ || frame.payload.empty()) return false;
    if (head_->form == AnswerSink::Form::lines) {
        out_ += render_chunk(frame.payload);
        return true;
    }
    body_ += frame.payload;
    // A bound also on what our own processes send: a runaway answer must not fill the daemon.
    return body_.size() <= kMostResultBytes;
}

void Connection::on_worker_done()
{
    channel_.reset();
    const Duration duration = call_->duration;
    if (process_) {
        // It has closed its channel; should it live on, it is of no more use.
        // Whatever it still does, nobody waits for it: the answer is complete, or there will be
        // none.
        static_cast<void>(process_->send_signal(SIGKILL));
        host_.reap(std::move(*process_), [] {});
        process_.reset();
    }
    host_.end_slot(*this, duration);
    if (!head_) {
        return refuse(500, Error(Code::internal, "the process of this call died"), persistence());
    }
    if (head_->form == AnswerSink::Form::whole) {
        return respond(head_->status, head_->type, body_, persistence());
    }
    note(head_->status, {});
    out_ += last_chunk();
    phase_ = Phase::answering;
    close_after_ = persistence() == Persistence::close;
    flush();
}

void Connection::upgrade(Worker worker)
{
    phase_ = Phase::streaming;
    timer_->cancel();
    // The socket goes over to the stream, with what the client sent ahead.
    auto stream = Stream::start(host_.loop(), std::move(socket_), std::exchange(in_, {}),
                                std::move(worker), [this](int status, const std::string& body) {
                                    // 499 is only for our counters and the log: the client closed
                                    // before there was an answer.
                                    note(status == 0 ? 499 : status, body);
                                    close();
                                });
    if (!stream) return close();
    stream_ = std::move(*stream);
}

Persistence Connection::persistence() const
{
    // Draining: a client comes back to the next daemon over a new connection.
    const bool keep = request_.keep_alive && !half_closed_ && !host_.draining();
    return keep ? Persistence::keep_alive : Persistence::close;
}

void Connection::refuse(int status, const Error& error, Persistence persistence)
{
    respond(status, kJsonType, error_body(error), persistence);
}

void Connection::respond(int status, std::string_view type, std::string_view body,
                         Persistence persistence)
{
    if (phase_ == Phase::closed) return;
    std::map<std::string, std::string> more;
    // RFC 9110, 10.2.3: a hint, in seconds.
    if (status == 503) more.emplace("Retry-After", "1");
    if (status == 426) more.emplace("Upgrade", kUpgradeProtocol);
    note(status, body);
    out_ += render_response(status, type, body, persistence, more);
    phase_ = Phase::answering;
    close_after_ = persistence == Persistence::close;
    flush();
}

void Connection::note(int status, std::string_view body)
{
    const ServerParts& parts = host_.parts();
    const std::string operation(route_ != nullptr ? to_string(route_->operation) : "none");
    if (call_)
        host_.counters().count_answer(*call_, status, body);
    else
        ++host_.counters().requests[{operation, status}];
    // Every client greets: nobody wants to read of it.
    if (!parts.log || (call_ && call_->operation == Operation::version)) return;
    const auto took = std::chrono::duration_cast<Millis>(std::chrono::steady_clock::now() - began_);
    std::vector<LogField> fields{{"SANDBOX_OPERATION", operation},
                                 {"SANDBOX_STATUS", std::to_string(status)},
                                 {"SANDBOX_PEER_UID", std::to_string(peer_.uid)},
                                 {"SANDBOX_PEER_PID", std::to_string(peer_.pid)}};
    if (call_ && !call_->reference.empty()) {
        fields.push_back({"SANDBOX_REFERENCE", call_->reference});
    }
    // The id makes the log line searchable for the sandbox that came of it.
    if (call_ && call_->operation == Operation::run && status < 300) {
        const auto json = canon::parse(body);
        if (json) {
            const auto result = run_result_from_json(*json);
            if (result) fields.push_back({"SANDBOX_ID", result->id.str()});
        }
    }
    // Escaped: a log is read in terminals. The path is cut, the reference may be hostile.
    std::string line = escaped(request_.method.substr(0, 16)) + " " +
                       escaped(request_.path.substr(0, 200)) + " " + std::to_string(status) + " " +
                       std::to_string(took.count()) + " ms, uid " + std::to_string(peer_.uid);
    parts.log(status >= 400 ? kComplaint : kInfo, line, fields);
}

void Connection::flush()
{
    while (phase_ != Phase::closed && sent_ < out_.size()) {
        const ssize_t put = send(socket_->fd(), out_.data() + sent_, out_.size() - sent_,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EAGAIN) {
            if (socket_->waits_writable()) return;
            // Armed when the client stops reading, cancelled in on_flushed() when it goes on.
            if (phase_ == Phase::answering || phase_ == Phase::working) {
                set_deadline(host_.parts().limits.write_time, 0, "reader too slow");
            }
            return socket_->when_writable([self = weak_from_this()] {
                if (const auto alive = self.lock()) alive->flush();
            });
        }
        if (put < 0) return close();
        sent_ += static_cast<std::size_t>(put);
    }
    if (phase_ == Phase::closed) return;
    out_.clear();
    sent_ = 0;
    // Everything is out: the next step may begin.
    on_flushed();
}

void Connection::on_flushed()
{
    if (phase_ == Phase::working) {
        timer_->cancel();
        if (channel_ && !channel_->waits_readable()) {
            // On a turn of its own: flush() may have been called from read_channel() itself.
            host_.loop().soon([self = weak_from_this()] {
                if (const auto alive = self.lock()) alive->read_channel();
            });
        }
    }
    if (phase_ == Phase::answering) next_request();
}

void Connection::next_request()
{
    if (close_after_) return close();
    timer_->cancel();
    phase_ = Phase::request;
    // Nothing of one request may reach the next.
    reader_ = RequestReader();
    request_ = {};
    call_.reset();
    route_ = nullptr;
    header_seen_ = false;
    set_deadline(host_.parts().limits.idle_time, 0, "idle");
    want_more();
    // On a turn of its own: a client that sends many requests at once waits among others.
    host_.loop().soon([self = weak_from_this()] {
        const auto alive = self.lock();
        if (alive && alive->phase_ == Phase::request) alive->process();
    });
}

void Connection::close()
{
    if (phase_ == Phase::closed) return;
    // First, so that nothing that is called below finds it open.
    const Phase was = std::exchange(phase_, Phase::closed);
    timer_->cancel();
    const auto self = shared_from_this();
    if (was == Phase::working && process_) {
        // A verb that began is brought to its end; waiting and following are for this client only.
        if (call_->duration == Duration::long_lasting) {
            static_cast<void>(process_->send_signal(SIGKILL));
        }
        // The channel is kept open until the worker has ended: a write into it must not kill a verb
        // that is half done.
        host_.reap(std::move(*process_), [channel = std::shared_ptr(std::move(channel_))] {});
        process_.reset();
        host_.end_slot(*this, call_->duration);
    }
    if (was == Phase::streaming) {
        if (stream_) {
            sys::Pidfd process = stream_->take_process();
            static_cast<void>(process.send_signal(SIGKILL));
            host_.reap(std::move(process), [] {});
            // The stream may be what called: it goes on the next turn.
            host_.loop().soon([stream = std::shared_ptr(std::move(stream_))] {});
        }
        host_.end_slot(*this, call_->duration);
    }
    socket_.reset();
    // Last: the server may drop its reference to this.
    host_.forget(*this);
}

}  // namespace sandbox::control
