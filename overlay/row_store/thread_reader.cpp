// The portable back end: a pool of threads, each with one page buffer and one pread at a time.
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <vector>

#include "page_reader.h"

namespace row_store {
namespace {

// sem_wait that a signal does not end.
void take(sem_t &semaphore) noexcept {
    while (::sem_wait(&semaphore) != 0 && errno == EINTR) {
    }
}

class ThreadReader final : public PageReader {
  public:
    ThreadReader(const PackedFile &file, const ReaderOptions &options) : PageReader(file, options) {
        ::sem_init(&work_, 0, 0);
        ::sem_init(&done_, 0, 0);
    }

    ~ThreadReader() override {
        stopping_.store(true, std::memory_order_release);
        for (std::size_t index = 0; index < threads_.size(); ++index) ::sem_post(&work_);
        for (const pthread_t thread : threads_) ::pthread_join(thread, nullptr);
        ::sem_destroy(&work_);
        ::sem_destroy(&done_);
    }

    // The caller reads too, so the pool has one thread fewer than reads in flight.
    bool start(std::string &why) {
        if (!buffers_.allocate(options_.depth * kPageBytes)) {
            why = "no memory for the page buffers";
            return false;
        }
        threads_.reserve(options_.depth);
        // Signals are for the engine's own threads.
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_attr_t attributes;
        ::pthread_attr_init(&attributes);
        ::pthread_attr_setstacksize(&attributes, 256 * 1024);
        int failed = 0;
        while (threads_.size() + 1 < options_.depth && failed == 0) {
            pthread_t thread;
            failed = ::pthread_create(&thread, &attributes, &ThreadReader::entry, this);
            if (failed == 0) threads_.push_back(thread);
        }
        ::pthread_attr_destroy(&attributes);
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (failed != 0)
            why = "thread " + std::to_string(threads_.size() + 1) + " of " + std::to_string(options_.depth) +
                  " could not be started (errno " + std::to_string(failed) + ")";
        return failed == 0;
    }

    bool read(const Batch &batch, ReadFailure &failure, std::uint64_t &retries) noexcept override {
        if (batch.page_count == 0) return true;
        batch_ = batch;
        failure_ = ReadFailure{};
        retries_.store(0, std::memory_order_relaxed);
        next_.store(0, std::memory_order_relaxed);
        failed_.store(false, std::memory_order_relaxed);
        const auto helpers =
            static_cast<std::uint32_t>(std::min<std::size_t>(threads_.size(), batch.page_count - std::size_t{1}));
        busy_.store(helpers, std::memory_order_release);
        for (std::uint32_t index = 0; index < helpers; ++index) ::sem_post(&work_);
        work(buffers_.data());
        if (helpers > 0) take(done_);
        retries += retries_.load(std::memory_order_relaxed);
        failure = failure_;
        return failure.kind == ReadFailure::Kind::none;
    }

    rs_backend backend() const noexcept override { return RS_THREADS; }

  private:
    static void *entry(void *self) noexcept {
        static_cast<ThreadReader *>(self)->serve();
        return nullptr;
    }

    void serve() noexcept {
        unsigned char *buffer = buffers_.data() + kPageBytes * (1 + started_.fetch_add(1, std::memory_order_relaxed));
        for (;;) {
            take(work_);
            if (stopping_.load(std::memory_order_acquire)) return;
            work(buffer);
            // The last one out ends the batch: after that nobody touches the caller's array.
            if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) ::sem_post(&done_);
        }
    }

    void work(unsigned char *buffer) noexcept {
        while (!failed_.load(std::memory_order_relaxed)) {
            const std::uint32_t index = next_.fetch_add(1, std::memory_order_relaxed);
            if (index >= batch_.page_count) return;
            const PageRead &wanted = batch_.pages[index];
            ReadFailure found = once(wanted.page, 0, buffer);
            if (found.kind != ReadFailure::Kind::none) {
                retries_.fetch_add(1, std::memory_order_relaxed);
                found = once(wanted.page, 1, buffer);
            }
            if (found.kind == ReadFailure::Kind::none) {
                hand_out(batch_, wanted, buffer);
                continue;
            }
            const std::lock_guard<std::mutex> hold(failure_lock_);
            if (failure_.kind == ReadFailure::Kind::none) failure_ = found;
            failed_.store(true, std::memory_order_relaxed);
        }
    }

    ReadFailure once(std::uint64_t page, std::uint32_t attempt, unsigned char *buffer) const noexcept {
        std::int32_t result = 0;
        for (std::uint32_t turn = 0; turn <= kInterruptions; ++turn) {
            const ssize_t got =
                ::pread(file_.handle(), buffer, kPageBytes, static_cast<off_t>(PackedFile::offset_of(page)));
            result = hooked(page, attempt, buffer, got < 0 ? -errno : static_cast<std::int32_t>(got));
            if (!interrupted(result)) break;
        }
        return judge(page, buffer, result);
    }

    PageBuffer buffers_;
    std::vector<pthread_t> threads_;
    sem_t work_, done_;
    std::atomic<bool> stopping_{false};
    std::atomic<std::uint32_t> started_{0};
    Batch batch_{};
    std::atomic<std::uint32_t> next_{0}, busy_{0};
    std::atomic<std::uint64_t> retries_{0};
    std::atomic<bool> failed_{false};
    std::mutex failure_lock_;
    ReadFailure failure_;
};

}  // namespace

std::unique_ptr<PageReader> make_thread_reader(const PackedFile &file, const ReaderOptions &options,
                                               std::string &why) {
    auto reader = std::make_unique<ThreadReader>(file, options);
    if (!reader->start(why)) return nullptr;
    return reader;
}

}  // namespace row_store
