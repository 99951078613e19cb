#include "control/metrics/http_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

#include "common/fd.h"
#include "common/logging/record.h"
#include "control/metrics/own_host.h"

namespace ina::metrics {

namespace {

/// Headers of all answers: nothing is kept or comes from elsewhere, and no other site may have it.
constexpr std::string_view kHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cache-Control: no-store\r\n"
    "Connection: close\r\n";

/// Civetweb's. Clients can take so much of the switch, and no more: the requests of four
/// connections at a time, 16 KiB and 1 s each, and 20 connections that wait. Stopping waits for
/// requests that are being served.
std::vector<const char*> options(const std::string& listen) {
  return {"listening_ports",
          listen.c_str(),
          "num_threads",
          "4",
          "request_timeout_ms",
          "1000",
          "max_request_size",
          "16384",
          "connection_queue",
          "20",
          nullptr};
}

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

}  // namespace

HttpServer::HttpServer(const std::string& listen, std::vector<std::string> hosts, Handler handler)
    : address_(listen.substr(0, listen.rfind(':'))),
      hosts_(std::move(hosts)),
      handler_(std::move(handler)) {
  mg_init_library(MG_FEATURES_DEFAULT);
  mg_callbacks callbacks{};
  callbacks.begin_request = on_request;
  std::vector<const char*> configuration = options(listen);
  unsigned code = 0;
  char text[256] = "";
  mg_init_data init{&callbacks, this, configuration.data()};
  mg_error_data error{&code, text, sizeof(text)};
  context_ = mg_start2(&init, &error);
  mg_server_port ports[1] = {};
  if (!context_ || mg_get_server_ports(context_, 1, ports) != 1) {
    if (context_) mg_stop(context_);
    mg_exit_library();
    throw std::runtime_error(text);
  }
  port_ = static_cast<uint16_t>(ports[0].port);
}

/// Civetweb looks whether to stop when a client connects, or after two seconds. The next switch
/// waits for the end of this one.
HttpServer::~HttpServer() {
  std::atomic<bool> stopped{false};
  std::thread stopper([&] {
    mg_stop(context_);
    stopped = true;
  });
  while (!stopped) {
    connect_to_self();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stopper.join();
  mg_exit_library();
}

/// And no more; of an IPv6 address nothing.
void HttpServer::connect_to_self() const {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port_);
  if (::inet_pton(AF_INET, address_.c_str(), &to.sin_addr) != 1) return;
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  (void)::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to));
}

HttpAnswer HttpServer::answer(const mg_connection* connection) const {
  const mg_request_info& request = *mg_get_request_info(connection);
  const char* const host = mg_get_header(connection, "Host");
  if (!host) return {.status = 400, .body = "the request has no Host header\n"};
  if (!is_own_host(host, hosts_))
    return {.status = 403,
            .body =
                "the request names another host: metrics.hosts lists the names by which this "
                "switch may be asked, besides addresses and localhost\n"};
  if (std::string_view(request.request_method) != "GET")
    return {.status = 405, .body = "there is nothing but GET\n"};
  return handler_(request.local_uri ? request.local_uri : "");
}

/// The caller is C.
int HttpServer::on_request(mg_connection* connection) try {
  const auto* self = static_cast<const HttpServer*>(mg_get_user_data(mg_get_context(connection)));
  HttpAnswer made;
  try {
    made = self->answer(connection);
  } catch (const std::exception& error) {
    logging::warn("metrics", "metrics")("text", error.what());
    made = {.status = 500, .body = "the answer could not be made; the log says why\n"};
  }
  std::string whole =
      fmt::format("HTTP/1.1 {} {}\r\n{}{}Content-Type: {}\r\nContent-Length: {}\r\n\r\n",
                  made.status, reason_of(made.status), kHeaders,
                  made.status == 405 ? "Allow: GET\r\n" : "", made.type, made.body.size());
  mg_disable_keep_alive(connection);  // nor is a body waited for
  if (std::string_view(mg_get_request_info(connection)->request_method) != "HEAD")
    whole += made.body;
  mg_write(connection, whole.data(), whole.size());  // at once: the client is woken once
  return made.status;
} catch (const std::exception&) {
  return 500;  // no memory; the connection is closed
}

}  // namespace ina::metrics
