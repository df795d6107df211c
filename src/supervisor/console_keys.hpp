// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace sandbox::supervisor {

// Watches what is typed for the keys that end an attachment. The beginning of them is held back
// until it is known whether the rest follows; everything else passes unchanged. Pure; one for each
// attachment.
class DetachKeys {
public:
    // Empty: nothing is ever watched for.
    explicit DetachKeys(std::string keys) : keys_(std::move(keys)) {}

    // What is to be passed on of `typed`. Once found() is true the rest is dropped.
    std::string feed(std::string_view typed)
    {
        if (keys_.empty()) return std::string(typed);
        std::string out;
        for (const char key : typed) {
            if (found_) break;
            held_ += key;
            // The longest end of what is held that may still become the keys stays.
            while (!held_.empty() && !std::string_view(keys_).starts_with(held_)) {
                out += held_.front();
                held_.erase(0, 1);
            }
            if (held_ == keys_) {
                found_ = true;
                held_.clear();
            }
        }
        return out;
    }
    bool found() const noexcept { return found_; }

private:
    std::string keys_;
    std::string held_;
    bool found_ = false;
};

}  // namespace sandbox::supervisor
