// The io_uring back end: one ring, up to `depth` page reads in flight, submitted and reaped in batches by the caller.
//
// There are twice as many page buffers as reads in flight: what has come is checked while the next reads are under way,
// never between two of them.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <vector>

#include "page_reader.h"
#include "ring.h"

namespace row_store {
namespace {

class RingReader final : public PageReader {
  public:
    using PageReader::PageReader;

    bool start(std::string &why) {
        const std::uint32_t slots = 2 * options_.depth;
        if (!buffers_.allocate(slots * kPageBytes)) {
            why = "no memory for the page buffers";
            return false;
        }
        if (const int failed = ring_.open(slots); failed != 0) {
            why = std::string("io_uring: ") + std::strerror(failed) + " (errno " + std::to_string(failed) + ")";
            return false;
        }
        ring_.fix_file(file_.handle());
        fixed_memory_ = ring_.fix_memory(buffers_.data(), buffers_.bytes());
        slots_.resize(slots);
        come_.reserve(slots);
        free_.reserve(slots);
        for (std::uint32_t slot = 0; slot < slots; ++slot) free_.push_back(slot);
        return read_a_page(why);
    }

    bool read(const Batch &batch, ReadFailure &failure, std::uint64_t &retries) noexcept override {
        std::uint32_t next = 0, in_flight = 0, refusals = 0;
        failure = broken_;
        come_.clear();
        while (in_flight > 0 || !come_.empty() ||
               (next < batch.page_count && failure.kind == ReadFailure::Kind::none)) {
            // After a failure nothing new is asked for; what is under way is waited for.
            const std::uint32_t end = failure.kind == ReadFailure::Kind::none ? batch.page_count : next;
            for (; next < end && in_flight < options_.depth && !free_.empty(); ++next, ++in_flight) {
                const std::uint32_t slot = free_.back();
                free_.pop_back();
                slots_[slot] = {next, 0, 0};
                push(slot, batch.pages[next].page);
            }
            const int failed = ring_.enter(least(in_flight, next < end));
            if ((failed == EAGAIN || failed == EBUSY) && ++refusals < kRefusals) {
                const timespec pause{0, 100'000};
                ::nanosleep(&pause, nullptr);
            } else if (failed != 0) {
                // What is under way goes to our own pages, never to the caller's; the ring is not used again.
                failure = broken_ = {ReadFailure::Kind::ring, batch.pages[0].page, -failed};
                return false;
            }
            for (const Come &one : come_) {
                if (finish(batch, one.slot, one.result, failure, retries))
                    ++in_flight;
                else
                    free_.push_back(one.slot);
            }
            come_.clear();
            std::uint64_t slot = 0;
            std::int32_t result = 0;
            for (; ring_.pop(slot, result); --in_flight) come_.push_back({static_cast<std::uint32_t>(slot), result});
        }
        return failure.kind == ReadFailure::Kind::none;
    }

    rs_backend backend() const noexcept override { return RS_IO_URING; }
    bool fixed_memory() const noexcept override { return fixed_memory_; }

  private:
    static constexpr std::uint32_t kWaitPart = 12;
    static constexpr std::uint32_t kRefusals = 10'000;  // of 100 us: the kernel is short of memory for a second

    struct Slot {
        std::uint32_t index, attempt, interruptions;
    };

    struct Come {
        std::uint32_t slot;
        std::int32_t result;
    };

    // How many completions to wait for: none while others wait to be checked. A few at a time keeps the drive's queue
    // full; the last ones come in halves, so that checking them overlaps.
    std::uint32_t least(std::uint32_t in_flight, bool more) const noexcept {
        if (!come_.empty()) return 0;
        return more ? std::max(1U, in_flight / kWaitPart) : (in_flight + 1) / 2;
    }

    void push(std::uint32_t slot, std::uint64_t page) noexcept {
        ring_.push_read(file_.handle(), buffers_.data() + slot * kPageBytes, kPageBytes, PackedFile::offset_of(page),
                        slot);
    }

    // True: the read was asked for again. False: the slot is free.
    bool finish(const Batch &batch, std::uint32_t slot, std::int32_t result, ReadFailure &failure,
                std::uint64_t &retries) noexcept {
        Slot &state = slots_[slot];
        const PageRead &wanted = batch.pages[state.index];
        unsigned char *bytes = buffers_.data() + slot * kPageBytes;
        result = hooked(wanted.page, state.attempt, bytes, result);
        if (failure.kind != ReadFailure::Kind::none) return false;
        if (interrupted(result) && state.interruptions < kInterruptions) {
            ++state.interruptions;
            push(slot, wanted.page);
            return true;
        }
        const ReadFailure found = judge(wanted.page, bytes, result);
        if (found.kind == ReadFailure::Kind::none) {
            hand_out(batch, wanted, bytes);
            return false;
        }
        if (state.attempt == 0) {
            state = {state.index, 1, 0};
            ++retries;
            push(slot, wanted.page);
            return true;
        }
        failure = found;
        return false;
    }

    // The probe: a filter may allow the set-up and forbid the rest, an old kernel may lack the operation.
    bool read_a_page(std::string &why) noexcept {
        push(0, 0);
        std::uint64_t tag = 0;
        std::int32_t result = 0;
        const int failed = ring_.enter(1);
        if (failed == 0 && ring_.pop(tag, result) && result >= 0) return true;
        const int reason = failed != 0 ? failed : -result;
        why = std::string("io_uring read: ") + std::strerror(reason) + " (errno " + std::to_string(reason) + ")";
        return false;
    }

    // Before the ring, so that the ring goes first: no read may be under way into freed pages.
    PageBuffer buffers_;
    Ring ring_;
    bool fixed_memory_ = false;
    ReadFailure broken_;
    std::vector<Slot> slots_;
    std::vector<Come> come_;
    std::vector<std::uint32_t> free_;
};

}  // namespace

std::unique_ptr<PageReader> make_ring_reader(const PackedFile &file, const ReaderOptions &options, std::string &why) {
    auto reader = std::make_unique<RingReader>(file, options);
    if (!reader->start(why)) return nullptr;
    return reader;
}

}  // namespace row_store
