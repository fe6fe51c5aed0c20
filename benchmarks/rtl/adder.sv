// FP16 addition, to nearest even: adder.toml describes it for simfloat.
module adder(input logic [15:0] a, b, output logic [15:0] result);
  logic a_nan, b_nan, a_infinite, b_infinite;
  assign a_nan = a[14:0] > 15'h7C00;
  assign b_nan = b[14:0] > 15'h7C00;
  assign a_infinite = a[14:0] == 15'h7C00;
  assign b_infinite = b[14:0] == 15'h7C00;
  assign result = a_nan || b_nan || (a_infinite && b_infinite && a != b) ? 16'h7E00
                : a_infinite ? a
                : b_infinite ? b
                : a == 16'h8000 && b == 16'h8000 ? 16'h8000
                : numbers::fp16_of_units(numbers::units_of_fp16(a) + numbers::units_of_fp16(b));
endmodule
