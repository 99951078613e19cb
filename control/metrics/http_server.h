// A small HTTP server around civetweb: GET only, one answer a connection.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

struct mg_connection;
struct mg_context;

namespace ina::metrics {

struct HttpAnswer {
  int status = 200;
  std::string_view type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  /// From several threads at a time. `path`: decoded, without a query.
  using Handler = std::function<HttpAnswer(std::string_view path)>;

  /// `listen`: "ADDRESS:PORT". `hosts`: see is_own_host(). Throws std::runtime_error with the
  /// reason if it cannot listen.
  HttpServer(const std::string& listen, std::vector<std::string> hosts, Handler handler);
  /// Ends what is under way, and waits for that.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const { return port_; }

 private:
  static int on_request(mg_connection* connection);
  HttpAnswer answer(const mg_connection* connection) const;
  void connect_to_self() const;

  const std::string address_;
  const std::vector<std::string> hosts_;
  const Handler handler_;
  mg_context* context_ = nullptr;
  uint16_t port_ = 0;
};

}  // namespace ina::metrics
